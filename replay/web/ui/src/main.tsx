import { render } from "preact";
import { App } from "./app";
import { applyTheme } from "./prefs";
import { start } from "./router";

applyTheme();
start();
render(<App />, document.getElementById("app")!);
