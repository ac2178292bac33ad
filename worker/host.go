package worker

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/machines"
)

// newHost makes the worker as orders are judged by. Its labels come with
// learnLabels.
func (w *Worker) newHost() *admit.Host {
	cfg := &w.cfg
	h := &admit.Host{
		Worker: w.self.Worker, Tag: w.self.Tag, Region: w.self.Region,
		Ledger: cfg.ledger(), Ports: cfg.Ports, Devices: cfg.Capacity.Devices, Drivers: w.drivers(),
		Load: w.load.read, Short: w.store.Short,
		NoNetwork: cfg.NoNetwork, ImageBudget: cfg.Capacity.ImageBudget(),
		Containers: func() error { return w.machines.Containers() },
		Scratch:    cfg.Volumes != nil, Peers: cfg.Peers != nil, Images: cfg.Images,
	}
	if cfg.Network != nil && cfg.NetworkMode != NetworkHost {
		h.Private = map[bourse.ImageKind]bool{bourse.RegistryImage: true, bourse.HostImage: cfg.NetworkMode == NetworkAll}
	}
	if cfg.Volumes != nil {
		h.VolumeLabels = cfg.Volumes.Labels()
	}
	if cfg.Pull != nil {
		h.Pollers = func(c *bourse.Config) *bourse.Refusal { return cfg.Pull.Room(machines.PollerLimits(c)) }
	}
	return h
}
