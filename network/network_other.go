//go:build !linux

package network

import (
	"context"
	"net"

	"github.com/bourse-dev/bourse"
)

// Network is for Linux only.
type Network struct{}

// Open returns CodeUnavailable: this system has no private networks.
func Open(Config) (*Network, error) { return nil, errSystem() }

func errSystem() error {
	return bourse.Errorf(bourse.CodeUnavailable, "network: private networks need Linux")
}

// Run returns when ctx ends.
func (*Network) Run(ctx context.Context, _ Names) error {
	<-ctx.Done()
	return nil
}

// Close does nothing.
func (*Network) Close() error { return nil }

// Labels are none.
func (*Network) Labels() map[string]string { return nil }

// Attach fails with CodeUnavailable.
func (*Network) Attach(context.Context, Spec) (Attachment, error) { return Attachment{}, errSystem() }

// Detach fails with CodeUnavailable.
func (*Network) Detach(context.Context, bourse.MachineID) error { return errSystem() }

// Recover fails with CodeUnavailable.
func (*Network) Recover(context.Context, []Spec) error { return errSystem() }

// Dial fails with CodeUnavailable.
func (*Network) Dial(context.Context, bourse.MachineID, uint16) (net.Conn, error) {
	return nil, errSystem()
}
