// Who the reader is to the server, and what he may do. Asked once for the page, by the frame. Must not know the pages.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { apiUrl } from "../api/client";
import type { Me } from "../api/types";
import { useLive, type Live } from "./live";

export const MeContext = createContext<Me | undefined>(undefined);

// For the frame alone; others use useMe.
export function useAskMe(): Live<Me> {
  return useLive<Me>(apiUrl("/me"), { pause: 5000 });
}

export function useMe(): Me | undefined {
  return useContext(MeContext);
}

// "Sweeps/CancelSweep"
export function may(me: Me | undefined, method: string): boolean {
  return me !== undefined && !me.read_only && me.may.includes(method);
}
