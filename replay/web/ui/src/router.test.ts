import assert from "node:assert/strict";
import { test } from "node:test";
import { read, to } from "./router";

test("addresses go out and come back", () => {
  const hostile = "r-../../x?y=1&z#<script>%\u202e";
  const place = read(to(["runs", hostile], { at: "+1.5s", q: "a&b=c #?", empty: "", none: undefined, zero: 0 }));
  assert.deepEqual(place.path, ["runs", hostile]);
  assert.deepEqual(Object.fromEntries(place.params), { at: "+1.5s", q: "a&b=c #?", zero: "0" });
});

test("any address is read", () => {
  assert.deepEqual(read("").path, []);
  assert.deepEqual(read("#").path, []);
  assert.deepEqual(read("#/runs").path, ["runs"]);
  assert.deepEqual(read("#runs/x//y/").path, ["runs", "x", "y"]);
  assert.deepEqual(read("#/runs/%E0%A4%A").path, ["runs", "%E0%A4%A"], "no encoding at all");
  assert.equal(read("#/search?q=a?b").params.get("q"), "a?b");
});
