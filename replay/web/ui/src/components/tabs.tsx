import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";

export interface Tab {
  id: string;
  title: string;
  badge?: number | undefined;
}

/** Tabs as ARIA has them: arrow keys move between them, the panel follows. */
export function Tabs({ name, tabs, shown, show, children }: {
  name: string;
  tabs: Tab[];
  shown: string;
  show: (id: string) => void;
  children: ComponentChildren;
}) {
  const list = useRef<HTMLDivElement>(null);
  const onKeyDown = (e: KeyboardEvent) => {
    const at = tabs.findIndex((tab) => tab.id === shown);
    const steps: Record<string, number> = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 };
    const next = steps[e.key];
    if (next === undefined) return;
    e.preventDefault();
    const tab = tabs[(next + tabs.length) % tabs.length]!;
    show(tab.id);
    list.current?.querySelector<HTMLElement>(`#tab-${tab.id}`)?.focus();
  };
  return (
    <div class="tabs">
      <div class="tablist" role="tablist" aria-label={name} ref={list} onKeyDown={onKeyDown}>
        {tabs.map((tab) => (
          <button type="button" role="tab" id={`tab-${tab.id}`} aria-selected={tab.id === shown} aria-controls="tabpanel"
            tabIndex={tab.id === shown ? 0 : -1} onClick={() => show(tab.id)}>
            {tab.title}
            {tab.badge ? <span class="count">{tab.badge}</span> : null}
          </button>
        ))}
      </div>
      <div class="tabpanel" role="tabpanel" id="tabpanel" aria-labelledby={`tab-${shown}`} tabIndex={0}>{children}</div>
    </div>
  );
}
