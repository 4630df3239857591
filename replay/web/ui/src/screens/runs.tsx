import { useGet } from "../api";
import { Loaded } from "../components/boxes";
import { to } from "../router";
import type { RunPage } from "../types";

export function Runs(_: { params: URLSearchParams }) {
  const got = useGet<RunPage>("/runs", { limit: 100 });
  return <Loaded got={got}>{(page) => <ul>{page.runs.map((r) => <li><a href={to(["runs", r.run])}>{r.run}</a></li>)}</ul>}</Loaded>;
}
