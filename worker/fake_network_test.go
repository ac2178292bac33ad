package worker

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
)

// memNetwork holds a host's networks in memory. It outlives the daemons that use it.
type memNetwork struct {
	dir string // directory of the namespaces' files; it need not exist

	mu    sync.Mutex
	specs map[bourse.MachineID]network.Spec
	dials []netip.AddrPort
	fault func(ctx context.Context, call string, after bool) error
}

func newMemNetwork() *memNetwork {
	return &memNetwork{specs: map[bourse.MachineID]network.Spec{}}
}

func (f *memNetwork) failing(fault func(ctx context.Context, call string, after bool) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *memNetwork) call(ctx context.Context, name string, fn func() error) error {
	f.mu.Lock()
	fault := f.fault
	f.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, name, false); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	err := fn()
	f.mu.Unlock()
	if err == nil && fault != nil {
		err = fault(ctx, name, true)
	}
	return err
}

func (f *memNetwork) Attach(ctx context.Context, spec network.Spec) (at network.Attachment, err error) {
	return at, f.call(ctx, "Attach", func() error {
		if err := spec.Validate(); err != nil {
			return err
		}
		if old, ok := f.specs[spec.Machine]; ok && old != spec {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is in another network", spec.Machine)
		}
		f.specs[spec.Machine] = spec
		at = network.Attachment{
			Namespace: f.Namespace(spec.Machine), Address: bourse.PrivateAddress(spec.Network, spec.Machine),
			Resolver: []string{"fdaa::3"}, Hosts: []string{"::1 self"},
		}
		return nil
	})
}

func (f *memNetwork) Detach(ctx context.Context, id bourse.MachineID) error {
	return f.call(ctx, "Detach", func() error { delete(f.specs, id); return nil })
}

func (f *memNetwork) Recover(ctx context.Context, keep []network.Spec) error {
	return f.call(ctx, "Recover", func() error {
		clear(f.specs)
		for _, spec := range keep {
			f.specs[spec.Machine] = spec
		}
		return nil
	})
}

func (f *memNetwork) Dial(ctx context.Context, id bourse.MachineID, port uint16) (conn net.Conn, err error) {
	return conn, f.call(ctx, "Dial", func() error {
		spec, ok := f.specs[id]
		if !ok {
			return bourse.Errorf(bourse.CodeUnavailable, "machine %s has no network", id)
		}
		f.dials = append(f.dials, netip.AddrPortFrom(bourse.PrivateAddress(spec.Network, id), port))
		near, far := net.Pipe()
		go func() { _, _ = far.Write([]byte("hello")); _ = far.Close() }()
		conn = near
		return nil
	})
}

func (f *memNetwork) Namespace(id bourse.MachineID) string { return f.dir + "/netns/" + string(id) }

func (f *memNetwork) Labels() map[string]string { return map[string]string{"network": "private"} }

func (f *memNetwork) attached() []bourse.MachineID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.specs))
}

var _ Network = (*memNetwork)(nil)
