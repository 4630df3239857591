import { Component, type ComponentType } from "preact";
import { Problem } from "../api";
import { ErrorBox } from "../components/boxes";

/** Shows what is below it, or in words that it could not be shown: one broken part does not take the page along. */
class Guard<P> extends Component<{ of: ComponentType<P>; props: P }, { error: unknown }> {
  override state: { error: unknown } = { error: undefined };

  override componentDidCatch(error: unknown): void {
    this.setState({ error });
  }

  override render() {
    const { of: Shown, props } = this.props;
    if (this.state.error === undefined) return <Shown {...(props as P & object)} />;
    const detail = this.state.error instanceof Error ? this.state.error.message : String(this.state.error);
    const problem = new Problem({ title: "This part of the page could not be shown", detail, hint: "Is the page older than the server? Reload it. The rest of the page still works." });
    return <ErrorBox error={problem} retry={() => this.setState({ error: undefined })} />;
  }
}

/** The module's component with a guard around it. */
export function guarded<P>(module: { default: ComponentType<P> }): { default: ComponentType<P> } {
  const Inner = module.default;
  return { default: (props: P) => <Guard of={Inner} props={props} /> };
}
