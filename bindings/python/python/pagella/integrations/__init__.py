"""Inside other people's frameworks: `pagella.integrations.langchain`, which needs `langchain-core`."""
