import { Badge, Hash, Length, Time, Words } from "../components/basic";
import type { RunStore } from "../runstore";
import { bytes, decode, flat } from "../text";
import type { Text, ToolCall, Verdict } from "../types";
import { type Field, isObject } from "./fields";
import { Argv, SearchFor, Seq, VerdictBadge } from "./shared";

/** A field's value, as its form asks for. A value that is not of that form is shown as what it is. */
export function Value({ run, field: { form, value } }: { run: RunStore; field: Field }) {
  switch (form) {
    case "argv":
      if (Array.isArray(value)) return <><Argv argv={value as Text[]} limit={2000} /> {value.length > 0 && <SearchFor by="argv" value={decode(value[0] as Text)} />}</>;
      break;
    case "list":
      if (Array.isArray(value)) return value.length ? <ul class="plain-list">{value.map((v) => <li><Any value={v} /></li>)}</ul> : <span class="muted">none</span>;
      break;
    case "hash":
      if (typeof value === "string") return <><Hash value={value} length={24} />{/^[0-9a-f]{64}$/.test(value) && <> <SearchFor by="hash" value={value} /></>}</>;
      break;
    case "host":
      if (isText(value)) return <><Words text={value} /> <SearchFor by="host" value={decode(value)} /></>;
      break;
    case "path":
      if (isText(value)) return <><Words text={value} limit={1000} /> <SearchFor by="path" value={decode(value)} /></>;
      break;
    case "secret":
      if (typeof value === "string") return <><Words text={value} /> <SearchFor by="secret" value={value} /></>;
      break;
    case "rule":
      if (typeof value === "string") return <><Words text={value} /> <SearchFor by="rule" value={value} /></>;
      break;
    case "seq":
      if (typeof value === "number") return <Seq run={run} seq={value} />;
      break;
    case "time":
      if (typeof value === "string") return <Time at={value} date />;
      break;
    case "duration":
      if (typeof value === "number") return <Length ns={value} />;
      break;
    case "bytes":
      if (typeof value === "number") return <span class="num" title={`${value.toLocaleString("en-GB")} bytes`}>{bytes(value)}</span>;
      break;
    case "count":
      if (typeof value === "number") return <span class="num">{value.toLocaleString("en-GB")}</span>;
      break;
    case "number":
      if (typeof value === "number") return <span class="num">{value}</span>;
      break;
    case "flag":
      if (typeof value === "boolean") return <span>{value ? "yes" : "no"}</span>;
      break;
    case "verdict":
      if (value === "allow" || value === "deny") return <VerdictBadge verdict={value as Verdict} />;
      break;
    case "proc":
      if (typeof value === "string") return <Hash value={value} length={16} />;
      break;
    case "tools":
      if (Array.isArray(value)) return <ol class="tools">{value.map((t) => <li><Tool call={t as ToolCall} /></li>)}</ol>;
      break;
  }
  return <Any value={value} />;
}

function Tool({ call }: { call: ToolCall }) {
  if (!isObject(call)) return <Any value={call} />;
  return (
    <>
      <Words text={call.name} /> <Hash value={call.sha256} />
      {call.arguments !== undefined && <pre class="lines"><Words text={call.arguments} limit={1500} multiline /></pre>}
      {call.truncated && <Badge tone="warn">cut</Badge>}
    </>
  );
}

function Any({ value }: { value: unknown }) {
  if (isText(value)) return <Words text={value} limit={4000} multiline />;
  if (value === null || typeof value !== "object") return <span class="num">{flat(String(value))}</span>;
  return <Words text={JSON.stringify(value)} limit={2000} />;
}

function isText(value: unknown): value is Text {
  return typeof value === "string" || (isObject(value) && Object.keys(value).length === 1 && typeof value.base64 === "string");
}
