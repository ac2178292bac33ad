//go:build !linux

package mesh

import (
	"context"
	"log/slog"

	"github.com/bourse-dev/bourse"
)

// Device is a stub, because the mesh requires Linux.
type Device struct{}

func errSystem() error { return bourse.Errorf(bourse.CodeUnavailable, "the mesh requires Linux") }

// Open returns CodeUnavailable.
func Open(Config) (*Device, error) { return nil, errSystem() }

// LinkName returns "".
func LinkName(string) string { return "" }

// Serve returns CodeUnavailable.
func Serve(context.Context, string, *slog.Logger) error { return errSystem() }

// Remove does nothing.
func Remove(context.Context, string) error { return nil }

// Ended returns nil.
func (*Device) Ended() <-chan struct{} { return nil }

// Exists returns false.
func (*Device) Exists() bool { return false }

// Close does nothing.
func (*Device) Close() error { return nil }

// Apply returns CodeUnavailable.
func (*Device) Apply(context.Context, bourse.WorkerTag, []Peer, bool) error { return errSystem() }

// Status returns CodeUnavailable.
func (*Device) Status([]Peer) ([]bourse.MeshPeer, error) { return nil, errSystem() }
