// Who the reader is to the server, and what he may do. Must not know the pages.
import { apiUrl } from "../api/client";
import type { Me } from "../api/types";
import { useLive, type Live } from "./live";

export function useMe(): Live<Me> {
  return useLive<Me>(apiUrl("/me"));
}

// "Sweeps/CancelSweep"
export function may(me: Me | undefined, method: string): boolean {
  return me !== undefined && !me.read_only && me.may.includes(method);
}
