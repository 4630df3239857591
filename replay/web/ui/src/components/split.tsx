import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { clamp } from "../runstore";

/** Two parts with a bar between them that mouse and arrow keys move. */
export function Split({ name, start = 50, column = false, children }: {
  name: string;
  start?: number;
  column?: boolean;
  children: [ComponentChildren, ComponentChildren];
}) {
  const [percent, setPercent] = useState(start);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => box.current?.style.setProperty("--split", `${percent}%`), [percent]);
  const drag = (e: PointerEvent) => {
    const bar = e.currentTarget as HTMLElement;
    bar.setPointerCapture(e.pointerId);
    const move = (e: PointerEvent) => {
      const r = box.current!.getBoundingClientRect();
      setPercent(clamp(100 * (column ? (e.clientY - r.top) / r.height : (e.clientX - r.left) / r.width), 15, 85));
    };
    const end = () => {
      bar.removeEventListener("pointermove", move);
      bar.removeEventListener("pointerup", end);
      bar.removeEventListener("pointercancel", end);
    };
    bar.addEventListener("pointermove", move);
    bar.addEventListener("pointerup", end);
    bar.addEventListener("pointercancel", end);
  };
  const onKeyDown = (e: KeyboardEvent) => {
    const step = { ArrowLeft: -2, ArrowUp: -2, ArrowRight: 2, ArrowDown: 2 }[e.key];
    if (step === undefined) return;
    e.preventDefault();
    setPercent((p) => clamp(p + step, 15, 85));
  };
  return (
    <div class={column ? "split column" : "split"} ref={box}>
      <div class="part">{children[0]}</div>
      <div class="bar" role="separator" tabIndex={0} aria-label={name} aria-orientation={column ? "horizontal" : "vertical"}
        aria-valuenow={Math.round(percent)} aria-valuemin={15} aria-valuemax={85} onPointerDown={drag} onKeyDown={onKeyDown} />
      <div class="part">{children[1]}</div>
    </div>
  );
}
