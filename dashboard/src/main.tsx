// Starts the page. What is shown for which address: app/shell.tsx.
import { render } from "preact";
import { feed } from "./app/live";
import { interceptLinks } from "./app/router";
import { Shell } from "./app/shell";
import "./style/main.css";

interceptLinks();
feed.start();
render(<Shell />, document.getElementById("app")!);
