import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Problem } from "../api";
import { ErrorBox, Loading } from "./boxes";

/** Something whose code is loaded when it is first shown. */
export function Lazy<P extends object>({ load, props }: { load: () => Promise<{ default: ComponentType<P> }>; props: P }) {
  const [Shown, setShown] = useState<ComponentType<P> | null>(null);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    let on = true;
    load().then(
      (module) => on && setShown(() => module.default),
      () => on && setFailed(true),
    );
    return () => void (on = false);
  }, [load]);
  if (failed) {
    // The server is away, or it is another version with other names for its parts.
    const error = new Problem({ title: "A part of the page could not be loaded", hint: "Is custody serve still there? Trying again reloads the page." });
    return <ErrorBox error={error} retry={() => location.reload()} />;
  }
  return Shown ? <Shown {...props} /> : <Loading />;
}
