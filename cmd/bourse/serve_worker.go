package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/driver/process"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/tuning"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/publish"
	"github.com/bourse-dev/bourse/worker/volumes"
	"github.com/bourse-dev/bourse/worker/watch"
)

// destroyTimeout limits the time for each step of stopping an ephemeral worker: destroying its
// machines and volumes, stopping its supervisor, and stopping its log keeper. The limit is long
// enough for a busy host, because whatever is not destroyed in time remains on the host.
// leaveTimeout limits the time for notifying other servers that a worker is stopping.
const (
	destroyTimeout = 30 * time.Second
	leaveTimeout   = 500 * time.Millisecond
)

// host contains the parts of a worker.
type host struct {
	*server
	config   *serve.WorkerConfig
	capacity worker.Capacity
	driver   *process.Driver
	parts    parts
	gateway  *pullGateway   // nil if the worker is not a gateway
	worker   *worker.Worker // set once opened is closed
	opened   chan struct{}
}

// serveWorker runs a worker until ctx is done. Unless the worker is ephemeral, its
// machines keep running.
func serveWorker(ctx context.Context, c serve.WorkerConfig) (err error) {
	tuning.ProtectFromOOM(tuning.OOMDaemon)
	// The mode is 0711, because machines that run as other users must be able to reach
	// files below this directory.
	if err := os.MkdirAll(c.Data, 0o711); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "--data: %w", err)
	}
	// A restarted worker must announce its tag from the start. Otherwise, other servers could not
	// find its machines.
	known, _, err := worker.Known(c.Data, c.Log.Logger(os.Stderr))
	if err != nil {
		return err
	}
	c.Name, c.Region = cmp.Or(c.Name, known.Worker), cmp.Or(c.Region, known.Region)
	s, err := openServer(ctx, &c.ServerConfig, c.Name, bourse.RoleWorker, known.Tag)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	h := &host{server: s, config: &c, opened: make(chan struct{})}
	h.capacity = capacity(&c)
	h.capacity.Devices = gpus(ctx, &c.Host, s.log)
	defer func() { err = errors.Join(err, h.parts.close()) }()
	if err := h.openParts(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.gateway.close()) }()
	if err := h.openGateway(); err != nil {
		return err
	}
	limits := process.LimitsAuto
	if c.NoLimits {
		limits = process.LimitsOff
	}
	h.driver = process.New(process.Config{Dir: filepath.Join(c.Data, "process"), Supervisor: supervisorCommand(), Log: s.log, Limits: limits})
	recovered := make(chan struct{})
	return runStages(ctx, s.log,
		s.watchStage(),
		s.renewal(),
		s.viewStage(),
		s.lockOut(),
		// The membership precedes the worker, because a new worker needs it to choose
		// an unused tag.
		s.membership(),
		s.replication(),
		atEnd("driver", h.endDriver),
		atEnd("output", h.endOutput),
		atEnd("mesh", h.leaveMesh),
		stage{name: "pollers", run: h.watchPollers},
		stage{name: "worker", run: h.runWorker, ready: h.opened},
		stage{name: "parts", run: func(ctx context.Context) error { return h.parts.run(ctx, h.worker, h.log) }},
		// The API returns CodeUnavailable until the worker has recovered.
		stage{name: "api", run: h.serveAPI},
		stage{name: "recovery", run: func(ctx context.Context) error { return h.awaitRecovery(ctx, recovered) }, ready: recovered},
		stage{name: "gateway", run: h.serveGateway},
		h.gateway.withdraw(),
		atEnd("machines", h.destroyAll),
		atEnd("orders", h.leave),
		s.announce(),
	)
}

// runWorker opens the worker and runs it. Opening the worker recovers the machines of a
// previous daemon.
func (h *host) runWorker(ctx context.Context) (err error) {
	w, err := worker.Open(worker.Config{
		Dir: h.config.Data, ID: h.config.Name, Region: h.config.Region, Capacity: h.capacity, NoHost: !h.config.AllowHost,
		Ports:  admit.PortRange{First: int(h.config.Ports.First), Last: int(h.config.Ports.Last)},
		Driver: h.driver, Version: version().Release, Log: h.log,
		Tag:  func() bourse.WorkerTag { return h.unusedTag(ctx) },
		View: publish.NewReplica(h.replica.View, h.self.ID), Standby: watch.NewOthers(h.replica.View, h.replica.Replicator, h.replica.directory),
		Parts:  h.offered(),
		Policy: h.policy(),
		Failed: h.storeFailed,
		Forget: h.config.RemoveUnknown, Metrics: []prometheus.Collector{h.metrics()},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	h.worker = w
	h.groups[0].SetTag(w.Identity().Tag)
	close(h.opened)
	return w.Run(ctx)
}

// offered returns the worker's optional parts.
func (h *host) offered() worker.Parts {
	out := h.parts.offered(peers{h.fabric(), h.replica.directory})
	out.Secrets = workerSecrets{h.replica, h.server}
	if h.gateway != nil {
		out.Pull = h.gateway.driver
	}
	return out
}

func (h *host) serveAPI(ctx context.Context) error {
	api, worker := http.NewServeMux(), h.tracer.Handler(h.worker.Handler())
	api.Handle("/", admission.Require(worker, bourse.RoleBroker))
	for _, v := range fabric.Verbs() {
		api.Handle(v.Path(), admission.Require(worker, v.Roles...))
	}
	var secure *tls.Config
	if h.creds != nil {
		secure = h.creds.Server(append(bourse.ServerRoles(), bourse.RoleScraper)...)
	}
	if h.link != nil && secure == nil { // with certificates, quotes use connections instead, because messages do not authenticate their senders
		withdraw, err := h.link.Subscribe(h.self.ID, h.self.Region, worker)
		if err != nil {
			return err
		}
		defer withdraw()
	}
	return h.serve(ctx, h.listener, h.withMetrics(h.withReplication(direct.Handler(h.self.ID, api))), secure)
}

// awaitRecovery closes recovered once the worker has recovered.
func (h *host) awaitRecovery(ctx context.Context, recovered chan<- struct{}) error {
	select {
	case <-h.worker.Recovered():
		close(recovered)
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// leave notifies brokers that the worker no longer accepts orders.
func (h *host) leave(ctx context.Context) error {
	h.groups[0].SetLeaving(true)
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := h.worker.Leave(ctx); err != nil {
		h.log.Info("publish worker's departure failed", "err", err)
	}
	return nil
}

// destroyAll destroys an ephemeral worker's machines while the worker is still running.
func (h *host) destroyAll(ctx context.Context) error {
	if !h.config.Ephemeral {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	return h.worker.DestroyAll(ctx)
}

// endDriver disconnects from the machines' supervisor. If the worker is ephemeral, it
// stops the supervisor instead.
func (h *host) endDriver(ctx context.Context) error {
	if !h.config.Ephemeral || h.worker == nil {
		return h.driver.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	return h.driver.Shutdown(ctx)
}

// endOutput stops an ephemeral worker's log keeper.
func (h *host) endOutput(ctx context.Context) error {
	if !h.config.Ephemeral || h.parts.keeper == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	return h.parts.keeper.Shutdown(ctx)
}

// leaveMesh removes the mesh's link if the worker is ephemeral.
func (h *host) leaveMesh(ctx context.Context) error {
	if !h.config.Ephemeral || h.parts.mesh == nil {
		return nil
	}
	return h.endMesh(ctx)
}

// capacity returns the configured capacity. Amounts that are not configured are detected from the
// host.
func capacity(c *serve.WorkerConfig) worker.Capacity {
	out := worker.DetectCapacity(c.Data)
	stated := &c.Capacity
	if stated.CPUs > 0 {
		out.CPUs = float64(stated.CPUs) / 1000
	}
	if stated.Memory > 0 {
		out.Memory = stated.Memory
	}
	if stated.Disk > 0 {
		out.Disk = stated.Disk
	}
	out.GPUs, out.Countables = counts(stated.GPUs), counts(stated.Resources)
	maps.Copy(out.Labels, stated.Labels)
	out.Overcommit, out.Images = stated.Overcommit, c.Host.Images
	return out
}

func counts(a bourse.Amounts) map[string]int64 {
	out := make(map[string]int64, len(a))
	for _, x := range a {
		out[string(x.Resource)] = x.Amount
	}
	return out
}

// unusedTag chooses the tag of a new worker. It returns the first of the id's possible tags that no
// other known worker uses. If all are in use, it returns a random tag.
func (h *host) unusedTag(ctx context.Context) bourse.WorkerTag {
	select {
	case <-h.groups[0].Ready():
	case <-time.After(joinTimeout):
	case <-ctx.Done():
	}
	away := map[bourse.WorkerTag]bool{}
	known, err := view.Query(ctx, h.replica.View, inventory.Workers())
	if err != nil {
		h.log.Warn("read tags of absent workers from view failed", "err", err)
	}
	for _, w := range known {
		if w.ID != h.self.ID && w.ID.TagRank(w.Tag) < bourse.TagChoices { // skips invalid tags, which a worker might report
			away[w.Tag] = true
		}
	}
	for _, tag := range h.self.ID.Tags() {
		if !away[tag] && !h.groups[0].TagInUse(tag) {
			return tag
		}
	}
	return bourse.WorkerTag(1 + rand.Uint32N(1<<24-1)) // other members reject this tag if they have certificates
}

// peers implements volumes.Peers. It reaches the cluster's other workers through the
// fabric.
type peers struct {
	fabric    fabric.Fabric
	directory *gossip.Directory
}

var _ volumes.Peers = peers{}

// Export implements volumes.Peers.
func (p peers) Export(ctx context.Context, tag bourse.WorkerTag, id, grant string, from volume.Position) (io.ReadCloser, error) {
	to, ok := p.directory.ByTag(tag)
	if !ok {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker of %s is unreachable", id)
	}
	return fabric.VolumeExport.Open(ctx, p.fabric, to, fabric.Export{ID: id, Grant: grant, Moment: from.Moment, Offset: from.Offset}, nil)
}

// storeFailed exits the process immediately. The worker's memory may differ from its disk, so the
// worker must not send any more answers. Machines keep running, and the worker reads the disk again
// at its next start.
func (h *host) storeFailed(err error) {
	h.log.Error("store failed: daemon exits, machines keep running", "data", h.config.Data, "err", err)
	os.Exit(1)
}
