// Package redial connects to containerd with a short delay between attempts.
package redial

import (
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Containerd returns a client for the containerd that listens at address, the path of a
// socket. It connects on first use. While containerd is unavailable, the client retries
// at least every half second. On a busy host, a single attempt may take longer.
//
// Do not use [grpc.ClientConn.ResetConnectBackoff] to retry immediately: in grpc 1.83 it
// reads a map without its lock, which can crash the process.
func Containerd(address string) (*containerd.Client, error) {
	return containerd.New(address, containerd.WithExtraDialOpts([]grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
		MinConnectTimeout: 10 * time.Second,
	})}))
}
