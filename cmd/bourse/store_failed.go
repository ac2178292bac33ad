package main

import (
	"os"
)

// storeFailed ends the daemon as a kill would: no answer that is on its way may
// leave, since what it holds may not be what is on the disk. Machines go on; the
// next start reads the disk.
func (h *host) storeFailed(err error) {
	h.log.Error("the daemon ends: its store has failed; machines go on, and the next start reads what the disk holds", "data", h.config.Data, "err", err)
	os.Exit(1)
}
