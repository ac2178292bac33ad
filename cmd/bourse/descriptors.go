package main

import (
	"fmt"
	"math"
	"syscall"

	"github.com/bourse-dev/bourse/internal/throttle"
)

// shares divide a proxy's file descriptors: half for clients, a quarter for machines,
// a sixteenth for remembered bodies. What remains is for the proxy's own files and its
// connections to the cluster.
type shares struct {
	clients  *throttle.Fair // by address
	machines *throttle.Fair // by organization
	spools   int64
	// waiting is how many requests of one app may wait for a place at a machine, and as
	// many for a machine to be ready. Those and the requests at machines together do
	// not use up the connections of clients.
	waiting int
}

// descriptorShares divides the descriptors that this process may open.
func descriptorShares() (shares, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil { // the runtime has raised it as far as it may
		return shares{}, fmt.Errorf("read the limit of open files: %w", err)
	}
	n := int64(min(uint64(limit.Cur), math.MaxInt32)) //nolint:gosec // it fits
	return shares{clients: throttle.NewFair(n / 2), machines: throttle.NewFair(n / 4), spools: max(n/16, 1), waiting: int(max(n/8, 1))}, nil
}
