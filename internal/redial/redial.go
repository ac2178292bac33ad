// Package redial connects to containerd as its clients here do.
package redial

import (
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Containerd returns a client for the containerd that listens at address, the path of a
// socket. It connects when it is used, and where containerd is away it looks for it
// again every half second at most. A connection may take longer than that on a busy host.
//
// [grpc.ClientConn.ResetConnectBackoff] would have it look at once, and must not be used:
// in grpc 1.83 it reads a map without its lock, which ends the process.
func Containerd(address string) (*containerd.Client, error) {
	return containerd.New(address, containerd.WithExtraDialOpts([]grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
		MinConnectTimeout: 10 * time.Second,
	})}))
}
