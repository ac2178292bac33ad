package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/driver/container"
	"github.com/bourse-dev/bourse/driver/logs"
	"github.com/bourse-dev/bourse/driver/vm"
	"github.com/bourse-dev/bourse/image"
	"github.com/bourse-dev/bourse/internal/redial"
	"github.com/bourse-dev/bourse/network"
	"github.com/bourse-dev/bourse/network/mesh"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker"
	"github.com/bourse-dev/bourse/worker/volumes"
)

// parts contains a worker's optional features. A field is nil if the host does not
// support the feature or the operator has disabled it.
type parts struct {
	dialed    *containerdConn
	keeper    *logs.Keeper
	container *container.Driver
	images    *image.Store
	network   *network.Network
	noNetwork error // why machines with images cannot have networks; nil if they can
	mesh      *hostMesh
	volumes   *volume.Store
}

// openParts opens the features that the host supports. It does not start them. The connection to
// containerd is opened only when it is needed.
func (h *host) openParts() error {
	c := &h.config.Host
	if address := serve.ContainerdAddress(c.Containerd); address != "" {
		if err := h.openContainers(address); err != nil {
			return err
		}
	}
	if err := h.openNetwork(); err != nil {
		return err
	}
	if err := h.openMesh(); err != nil {
		return err
	}
	if c.NoVolumes {
		return nil
	}
	return h.openVolumes()
}

func (h *host) openVolumes() error {
	keys, err := volume.KeyFile(filepath.Join(h.config.Data, "volume.key"))
	if err != nil {
		return err
	}
	volumes, err := volume.Open(volume.Config{Dir: filepath.Join(h.config.Data, "volumes"), Log: h.log, Key: keys})
	if bourse.CodeOf(err) == bourse.CodeUnavailable {
		h.log.Info("volumes disabled", "why", err)
		return nil
	}
	h.parts.volumes = volumes
	return err
}

func (h *host) openContainers(address string) error {
	c := &h.config.Host
	p := &h.parts
	p.dialed = &containerdConn{address: address}
	p.keeper = logs.NewKeeper(logs.KeeperConfig{
		Dir: filepath.Join(h.config.Data, "container-logs"), Command: keeperCommand(), Log: h.log,
	})
	machines, err := vm.New(vm.Config{Dir: filepath.Join(h.config.Data, "vm"), Kernel: c.Kernel, AllowEmulation: c.Emulation})
	if err != nil {
		h.log.Info("virtual machines disabled", "why", err)
	} else if err := machines.KVM(); err != nil {
		h.log.Info("virtual machines emulated", "why", err)
	}
	p.container = container.New(container.Config{
		Client: p.dialed.client, Namespace: c.Namespace, Dir: filepath.Join(h.config.Data, "container"),
		Runtime: c.Runtime, Keeper: p.keeper, Runc: runcCommand(), VM: machines, Log: h.log,
	})
	registries := make(map[string]image.Registry, len(c.Registries))
	for host, r := range c.Registries {
		registries[host] = image.Registry{PlainHTTP: r.PlainHTTP, CA: r.CA}
	}
	p.images, err = image.Open(image.Config{
		Client: p.dialed.client, Namespace: c.Namespace, Budget: int64(h.capacity.ImageBudget()) << 20,
		Registries: registries, Private: c.Private, AllowedRegistries: c.AllowedRegistries, DockerConfig: c.DockerAuth, OrgConfigs: c.OrgAuth, Log: h.log,
	})
	return err
}

func (h *host) openNetwork() error {
	mode := h.config.Host.Network
	if mode == serve.NetworkHost {
		return nil
	}
	c := network.Config{Dir: filepath.Join(h.config.Data, "network"), Region: h.config.Region, Log: h.log}
	if h.config.Host.Mesh.IsValid() {
		c.Mesh = mesh.LinkName(meshDir(h.config.Data))
	}
	n, err := network.Open(c)
	switch lack := whyNoNetwork(mode, err); {
	case lack != nil:
		h.log.Info("support for machine images disabled", "why", lack)
		h.parts.noNetwork = lack
	case err != nil:
		return err
	default:
		h.parts.network = n
	}
	return nil
}

// whyNoNetwork determines whether the worker may start without networks. err is the error from
// opening them. If the worker may start, whyNoNetwork returns a non-nil error, which the worker
// gives as the reason when it refuses orders for machines with images. If the worker must not
// start, or if err is nil, whyNoNetwork returns nil. The worker does not fall back to the host's
// network, because a machine on that network can reach everything on the host's loopback. The
// operator has to choose that network explicitly.
func whyNoNetwork(mode serve.NetworkMode, err error) error {
	if mode != serve.NetworkAuto || bourse.CodeOf(err) != bourse.CodeUnavailable {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable, "the worker has no networks for machines with images, and --network host is not set: %w", err)
}

// offered returns the parts that the worker receives. It leaves out nil pointers, because an
// interface that contains a nil pointer is not nil.
func (p *parts) offered(peers volumes.Peers) worker.Parts {
	var out worker.Parts
	if p.container != nil {
		out.Container, out.Images = p.container, p.images
	}
	if p.network != nil {
		out.Network = p.network
	}
	if p.mesh != nil {
		out.Mesh = p.mesh.Mesh
	}
	if p.volumes != nil {
		out.Volumes, out.Peers = p.volumes, peers
	}
	return out
}

// policy returns the operator's settings that apply to machines.
func (h *host) policy() worker.Policy {
	c := &h.config.Host
	out := worker.Policy{SharedQuota: c.Shared, NoNetwork: h.parts.noNetwork, MachineDisk: diskPerMachine(), FailoverDelay: h.config.Standby, IdleAfter: h.config.IdleAfter, KeepAlive: true}
	switch c.Network {
	case serve.NetworkAll:
		out.NetworkMode = worker.NetworkAll
	case serve.NetworkHost:
		out.NetworkMode = worker.NetworkHost
	case serve.NetworkAuto, serve.NetworkContainers:
		out.NetworkMode = worker.NetworkContainers
	}
	return out
}

// run maintains the images, the networks and the mesh until ctx is done.
func (p *parts) run(ctx context.Context, w *worker.Worker, log *slog.Logger) error {
	names := w.Names()
	var wg sync.WaitGroup
	errs := make([]error, 3)
	if p.mesh != nil {
		self := w.Identity()
		if err := unusualTag(self.Worker, self.Tag); err != nil { // the worker has just chosen it
			log.Warn("mesh disabled", "why", err)
		} else {
			names.Elsewhere = p.mesh.remoteMachines(ctx)
			wg.Go(func() { errs[2] = p.mesh.Run(ctx, self.Tag) })
		}
	}
	if p.images != nil {
		wg.Go(func() { errs[0] = p.images.Run(ctx) })
	}
	if p.network != nil {
		wg.Go(func() { errs[1] = p.network.Run(ctx, names) })
	}
	wg.Wait()
	<-ctx.Done()
	return errors.Join(errs...)
}

// close closes the parts. Machines keep running under processes that outlive the daemon.
func (p *parts) close() error {
	var errs []error
	if p.container != nil {
		errs = append(errs, p.container.Close(), p.images.Close(), p.keeper.Close(), p.dialed.close())
	}
	if p.mesh != nil {
		errs = append(errs, p.mesh.device.Close())
	}
	if p.network != nil {
		errs = append(errs, p.network.Close())
	}
	return errors.Join(errs...)
}

// containerdConn is the connection to containerd, which is opened when it is first needed and
// reconnects automatically.
type containerdConn struct {
	address string

	mu   sync.Mutex
	made *containerd.Client
}

func (d *containerdConn) client() (*containerd.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made != nil {
		return d.made, nil
	}
	c, err := redial.Containerd(d.address)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "containerd at %s: %w", d.address, err)
	}
	d.made = c
	return c, nil
}

func (d *containerdConn) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made == nil {
		return nil
	}
	return d.made.Close()
}

// gpus returns the CDI names of the host's GPUs, by kind: the configured ones, or
// otherwise those that were detected.
func gpus(ctx context.Context, c *serve.HostConfig, log *slog.Logger) map[string][]string {
	if len(c.Devices) > 0 {
		return c.Devices
	}
	found := container.DetectGPUs(ctx, container.GPUSources{})
	for _, err := range found.Broken {
		log.Warn("read CDI specification failed", "err", err)
	}
	for _, g := range found.Unnamed {
		log.Warn("GPU ignored: no CDI specification names it", "gpu", g.Model, "bus", g.Bus)
	}
	return found.Kinds
}

// diskPerMachine returns the maximum disk space that the worker needs for a machine's
// log and record. The record is stored twice: in the write-ahead log and in the
// snapshot.
func diskPerMachine() bourse.MiB {
	size, files := logs.Defaults(0, 0)
	return bourse.MiB(size*int64(files)>>20) + 2
}
