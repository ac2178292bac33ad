//go:build !linux

package network

import (
	"context"
	"net"

	"github.com/bourse-dev/bourse"
)

// Network is a stub, because private networks require Linux.
type Network struct{}

// Open returns CodeUnavailable, because private networks require Linux.
func Open(Config) (*Network, error) { return nil, errSystem() }

// CheckHost returns CodeUnavailable.
func CheckHost() error { return errSystem() }

func errSystem() error {
	return bourse.Errorf(bourse.CodeUnavailable, "network: private networks require Linux")
}

// Run waits until ctx is done.
func (*Network) Run(ctx context.Context, _ Names) error {
	<-ctx.Done()
	return nil
}

// Close does nothing.
func (*Network) Close() error { return nil }

// Labels returns nil.
func (*Network) Labels() map[string]string { return nil }

// Attach returns CodeUnavailable.
func (*Network) Attach(context.Context, Spec) (Attachment, error) { return Attachment{}, errSystem() }

// Detach returns CodeUnavailable.
func (*Network) Detach(context.Context, bourse.MachineID) error { return errSystem() }

// Recover returns CodeUnavailable.
func (*Network) Recover(context.Context, []Spec) error { return errSystem() }

// Dial returns CodeUnavailable.
func (*Network) Dial(context.Context, bourse.MachineID, uint16) (net.Conn, error) {
	return nil, errSystem()
}

// Networks returns false.
func (*Network) Networks() ([]string, bool) { return nil, false }

// Changed returns nil.
func (*Network) Changed() <-chan struct{} { return nil }

// AdmitPeers returns CodeUnavailable.
func (*Network) AdmitPeers(context.Context) error { return errSystem() }

// SetRemotes returns CodeUnavailable.
func (*Network) SetRemotes(context.Context, []Remote, bool) error { return errSystem() }

// MTU returns 0.
func (*Network) MTU() int { return 0 }
