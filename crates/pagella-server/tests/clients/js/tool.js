// Tools that the suites offer, and what calls of them must be like.
'use strict';

const assert = require('node:assert/strict');

const object = (properties) => ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false });

const WEATHER = object({ city: { type: 'string', enum: ['Paris', 'Rome'] }, days: { type: 'integer', minimum: 1, maximum: 7 } });
const TIME = object({ zone: { type: 'string', enum: ['UTC', 'CET'] } });

/** Arguments of a call follow the schema of their tool. */
function checkArguments(name, given) {
  if (name === 'get_weather') {
    assert.ok(['Paris', 'Rome'].includes(given.city) && given.days >= 1 && given.days <= 7, JSON.stringify(given));
  } else {
    assert.equal(name, 'get_time');
    assert.ok(['UTC', 'CET'].includes(given.zone), JSON.stringify(given));
  }
}

module.exports = { TIME, WEATHER, checkArguments };
