package main

import (
	"context"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network/mesh"
	"github.com/bourse-dev/bourse/worker"
)

// hostMesh contains the parts of a worker's mesh.
type hostMesh struct {
	*mesh.Mesh
	device *mesh.Device
	view   *worker.MeshView
}

func meshDir(data string) string { return filepath.Join(data, "mesh") }

// meshRemoval limits the time that a mesh's process may take to exit.
const meshRemoval = 5 * time.Second

// openMesh prepares the mesh if it is configured and supported. Otherwise, it removes the link of an earlier daemon.
func (h *host) openMesh() error {
	if err := h.tryMesh(); err != nil {
		return err
	}
	if h.parts.mesh == nil {
		if err := h.endMesh(context.Background()); err != nil {
			h.log.Warn("remove earlier mesh link failed", "err", err)
		}
	}
	return nil
}

// unusualTag returns CodeUnavailable if a worker's tag is not derived from its ID. Other workers ignore such a tag,
// even if it is in the worker's certificate, because the mesh does not see certificates.
func unusualTag(id bourse.WorkerID, tag bourse.WorkerTag) error {
	if id.TagRank(tag) < bourse.TagChoices {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable, "tag %s of this worker is not derived from its name, so other workers would not accept the addresses of its machines", tag)
}

func (h *host) tryMesh() error {
	if !h.config.Host.Mesh.IsValid() || h.parts.network == nil {
		return nil
	}
	if h.self.Tag != 0 {
		if err := unusualTag(h.self.ID, h.self.Tag); err != nil {
			h.log.Warn("mesh disabled", "why", err)
			return nil
		}
	}
	identity, err := mesh.LoadIdentity(filepath.Join(h.config.Data, "mesh.key"))
	if err != nil {
		return err
	}
	device, err := mesh.Open(mesh.Config{
		Dir: meshDir(h.config.Data), Command: tunnelCommand(), Identity: identity, Port: h.config.Host.Mesh.Port(), MTU: mesh.MTU(h.parts.network.MTU()), Log: h.log,
	})
	if bourse.CodeOf(err) == bourse.CodeUnavailable {
		h.log.Warn("mesh disabled", "why", err)
		return nil
	}
	if err != nil {
		return err
	}
	apps := func() ([]bourse.App, error) { return h.worker.Names().Apps() } // called only while the worker runs
	view := worker.NewMeshView(h.replica.View, h.replica.Replicator, apps)
	announce := identity.Announce(h.self.ID, h.meshEndpoint())
	h.parts.mesh = &hostMesh{mesh.New(h.self.ID, announce, device, h.parts.network, view, h.log), device, view}
	return nil
}

// meshEndpoint returns the address where other workers reach this worker's mesh: the configured one or, by default, the
// host's. It returns the zero value if neither can be used by other hosts.
func (h *host) meshEndpoint() netip.AddrPort {
	c := h.config.Host.Mesh
	for _, a := range []netip.Addr{c.Addr(), h.config.Address, h.config.Listen.Addr()} {
		if a.IsValid() && a.IsGlobalUnicast() {
			return netip.AddrPortFrom(a, c.Port())
		}
	}
	return netip.AddrPort{}
}

// endMesh removes the mesh's link. It is called if the worker has no mesh, and when an ephemeral worker stops.
func (h *host) endMesh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, meshRemoval)
	defer cancel()
	return mesh.Remove(ctx, meshDir(h.config.Data))
}

// remoteMachines returns a function that looks up an app's machines on other workers that can be reached through the mesh.
func (m *hostMesh) remoteMachines(ctx context.Context) func(*bourse.App) ([]bourse.Machine, error) {
	return func(app *bourse.App) ([]bourse.Machine, error) { return m.view.Elsewhere(ctx, app, m) }
}
