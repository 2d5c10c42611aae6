//! The two forms in which settings are declared: a section with its keys, and a choice between words.

/// Declares settings once: what this makes of a declaration is the struct that the server reads, its
/// defaults, and a [`Setting`](super::Setting) for every key, from which files, variables, flags,
/// samples and documentation follow.
///
/// A field reads `/// help`, then `name: Type = default, options;`. The key is the field's name, the
/// section the first name after `at`, which says where in the settings the struct stands. Options are
/// methods of [`Row`](super::setting::Row). `groups` are sections within it, declared likewise; what
/// stands under `no keys` is set by code alone.
macro_rules! section {
    (
        $(#[$about:meta])*
        $name:ident at $section:ident $(. $group:ident)* {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = $default:expr
                    $(, $option:ident $(( $($argument:expr),+ ))?)*;
            )+
        }
        $(groups { $( $(#[doc = $group_help:literal])+ $inner:ident: $inner_type:ty; )+ })?
        $(no keys {
            $(
                $(#[doc = $own_help:literal])+
                $own:ident: $own_type:ty = $own_default:expr;
            )+
        })?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $help])+ pub $field: $type, )+
            $($( $(#[doc = $group_help])+ pub $inner: $inner_type, )+)?
            $($( $(#[doc = $own_help])+ pub $own: $own_type, )+)?
        }

        impl Default for $name {
            fn default() -> Self {
                $name {
                    $( $field: $default, )+
                    $($( $inner: Default::default(), )+)?
                    $($( $own: $own_default, )+)?
                }
            }
        }

        impl $name {
            fn within(settings: &mut $crate::Settings) -> &mut Self {
                &mut settings.$section $(.$group)*
            }

            /// Its keys, and those of its groups.
            pub(super) fn entries() -> Vec<$crate::settings::Setting> {
                use $crate::settings::setting::Row;
                let (section, usual) = (stringify!($section), Self::default());
                let own = vec![$({
                    let (key, help) = (stringify!($field), concat!($($help),+));
                    Row::new(section, key, help, &usual.$field, |all| &mut Self::within(all).$field)
                        $( .$option($($($argument),+)?) )*
                        .finish()
                },)+];
                own.into_iter() $($( .chain(<$inner_type>::entries()) )+)? .collect()
            }
        }
    };
}

/// Declares a choice between words: an enum, and what every variant is called in files.
macro_rules! choice {
    (
        $(#[$about:meta])*
        $name:ident { $( $(#[$meaning:meta])* $variant:ident = $word:literal, )+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[$meaning])* $variant, )+ }

        impl $name {
            /// Every one.
            pub const ALL: [Self; [$($word),+].len()] = [$( $name::$variant ),+];

            /// What files call it.
            pub fn name(self) -> &'static str {
                match self { $( $name::$variant => $word, )+ }
            }
        }

        impl $crate::settings::value::Choice for $name {
            const WORDS: &[(&str, Self)] = &[$( ($word, $name::$variant) ),+];
        }
    };
}

pub(super) use {choice, section};
