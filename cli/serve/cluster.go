package serve

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"

	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/internal/tempdir"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	stopTimeout     = 5 * time.Second // how long a server may take to stop cleanly
	killGrace       = 2 * time.Second // how long the remaining processes may take to exit after that
	readyTimeout    = 3 * time.Minute // how long all servers may take to become ready and find each other
	membersInterval = 5 * time.Millisecond
)

// cluster contains the servers of a "bourse dev" cluster. mu guards only ready.
type cluster struct {
	shell   *cli.Shell
	config  config
	servers []*server // in the order of their start: the broker first, the proxy last
	nats    *server   // the NATS server that connects the other servers; nil if there is none
	name    string    // the cluster's name
	running sync.WaitGroup
	failed  chan error // receives the first error of a server that could not be started

	mu    sync.Mutex
	ready map[string]Ready // the latest report of each server, by the server's name
}

// run is the main function of the inner process. It starts the cluster and prints a
// message once the cluster is ready. When ctx is done or the keeper has exited, it stops
// the cluster and cleans up.
func run(ctx context.Context, s *cli.Shell, d config) error {
	adoptOrphans()
	ctx, stop := s.Lifetime(ctx, true)
	defer stop()
	began := s.Now()
	if d.temporary {
		dir, err := tempdir.Hold(d.data) // this process also locks the directory, because the keeper may be killed
		if err != nil {
			return fmt.Errorf("lock the servers' directory: %w", err)
		}
		defer func() { _ = dir.Release() }()
	}
	c := &cluster{shell: s, config: d, ready: map[string]Ready{}, failed: make(chan error, 1)}
	err := c.start(ctx)
	if err == nil {
		err = c.announce(s.Now().Sub(began))
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-c.failed:
		}
	}
	if ctx.Err() != nil {
		err = nil // the user has stopped the cluster
	}
	return errors.Join(err, c.stop())
}

// start starts the broker. It then starts the workers and the proxy in parallel; they
// join the broker. It returns once all workers accept the broker's orders.
func (c *cluster) start(ctx context.Context) error {
	defer cli.Spin(c.shell.Err, "starting the cluster")()
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := os.MkdirAll(c.config.data, 0o700); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "--data: %w", err)
	}
	api, err := c.config.apiAddress()
	if err != nil {
		return err
	}
	c.name = clusterNameOf(c.config.data)
	if err := c.addNATS(ctx); err != nil {
		return err
	}
	if err := makeKey(c.config.data); err != nil {
		return err
	}
	c.add(&server{child: child{name: "broker"}, role: bourse.RoleBroker, listen: api.String(), fixed: []string{
		"serve", "broker", "--data", filepath.Join(c.config.data, "broker"), "--credentials", c.config.data,
	}})
	if err := c.await(ctx, c.servers[0]); err != nil {
		return err
	}
	c.addWorkers()
	if err := c.addProxy(); err != nil {
		return err
	}
	for _, w := range c.servers[1:] {
		if err := c.await(ctx, w); err != nil {
			return err
		}
	}
	return c.awaitMembers(ctx)
}

// clusterNameOf derives the cluster's name from its data directory. Two clusters on one
// host therefore stay separate, regardless of their ports.
func clusterNameOf(data string) string {
	if whole, err := filepath.Abs(data); err == nil {
		data = whole
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(data)) // never fails
	return fmt.Sprintf("dev-%016x", h.Sum64())
}

// namespacePrefix returns the prefix that the cluster with the given data directory
// uses for its containerd namespaces.
func namespacePrefix(data string) string { return "bourse-" + clusterNameOf(data) + "-" }

// addNATS starts the NATS server if the cluster has one. The NATS server starts before all
// other servers and stops after them.
func (c *cluster) addNATS(ctx context.Context) error {
	if c.config.fabric != fabricNATS {
		return nil
	}
	c.nats = &server{child: child{name: fabricNATS}, role: RoleNATS, listen: "127.0.0.1:0", fixed: []string{"serve", "nats"}}
	c.nats.init(c)
	c.running.Go(c.nats.run)
	return c.await(ctx, c.nats)
}

func (c *cluster) addWorkers() {
	ports := portRanges(len(c.config.regions)*c.config.workers, c.config.api != cli.DefaultAPI)
	for i, region := range c.config.regions {
		for n := range c.config.workers {
			name := serverName(region, n+1)
			c.add(&server{child: child{name: name}, role: bourse.RoleWorker, listen: "127.0.0.1:0", fixed: []string{
				"serve", "worker", "--ephemeral", "--region", region, "--data", filepath.Join(c.config.data, name),
				"--cpus", c.config.cpus, "--memory", c.config.memory, "--idle-after", c.config.idleAfter, "--disk", "64GiB", "--resource", "slots=10",
				"--ports", ports(i*c.config.workers + n), "--registry-private", "--vm-emulation", "--containerd", c.config.containerd, "--containerd-namespace", namespacePrefix(c.config.data) + name,
			}})
		}
	}
}

// addProxy adds the proxy, unless it is disabled.
func (c *cluster) addProxy() error {
	at, err := c.config.proxyAddress()
	if err != nil || !at.IsValid() {
		return err
	}
	if !c.config.proxyGiven && c.config.api == cli.DefaultAPI && at.Port() == 0 {
		c.shell.Note(defaultProxy + " is in use; the proxy uses another port")
	}
	c.add(&server{
		child: child{name: "proxy"}, role: bourse.RoleProxy, listen: "127.0.0.1:0", http: at.String(), https: netip.AddrPortFrom(at.Addr(), 0).String(),
		fixed: []string{"serve", "proxy", "--region", c.config.regions[0], "--data", filepath.Join(c.config.data, "proxy"), "--self-signed"},
	})
	return nil
}

// workers returns the cluster's workers.
func (c *cluster) workers() []*server {
	return slices.DeleteFunc(slices.Clone(c.servers), func(d *server) bool { return d.role != bourse.RoleWorker })
}

// portRanges returns a function that assigns each of n workers its own range of ports. All
// ranges are below the kernel's ephemeral ports. If anywhere is set, the ranges start at a
// random port, so that a second cluster on the host is unlikely to use the same ports.
func portRanges(n int, anywhere bool) func(i int) string {
	const first, last = 20000, 32000
	size := min(1000, (last-first)/n)
	skip := 0
	if anywhere {
		skip = rand.IntN((last - first - n*size) + 1)
	}
	return func(i int) string {
		from := first + skip + i*size
		return strconv.Itoa(from) + "-" + strconv.Itoa(from+size-1)
	}
}

// add starts a server and keeps it running until stop is called.
func (c *cluster) add(d *server) {
	d.init(c)
	c.servers = append(c.servers, d)
	c.running.Go(d.run)
}

// await waits until a server has become ready for the first time.
func (c *cluster) await(ctx context.Context, d *server) error {
	select {
	case <-d.isReady:
		return nil
	case err := <-c.failed:
		return err
	case <-ctx.Done():
		return bourse.Errorf(bourse.CodeTimeout, "%s is not ready after %s", d.name, readyTimeout)
	}
}

// awaitMembers waits until every worker accepts the broker's orders.
func (c *cluster) awaitMembers(ctx context.Context) error {
	api := "http://" + c.broker().API
	token, _ := loopback.Find(c.shell.Getenv, api)
	client := machinesapi.Client{BaseURL: api, Token: token}
	want := len(c.workers())
	for {
		list, err := client.Workers(ctx)
		if err == nil && acceptingOrders(list) == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return bourse.Errorf(bourse.CodeTimeout, "the broker has found only %d of %d workers after %s", acceptingOrders(list), want, readyTimeout)
		case <-time.After(membersInterval):
		}
	}
}

// acceptingOrders returns the number of workers that accept orders.
func acceptingOrders(list []machinesapi.Worker) int {
	n := 0
	for _, w := range list {
		if w.Status == machinesapi.WorkerOK && !w.Leaving {
			n++
		}
	}
	return n
}

// broker returns the broker's latest report about itself.
func (c *cluster) broker() Ready {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready["broker"]
}

// noteReady records a server's report about itself. Once the cluster is ready, each
// restart of a server updates the ready file.
func (c *cluster) noteReady(r Ready, first bool) {
	c.mu.Lock()
	c.ready[r.ID] = r
	c.mu.Unlock()
	if !first {
		if err := c.writeReady(); err != nil {
			c.shell.Note("warning: " + err.Error())
		}
	}
}

// others returns the gossip addresses that the named server should join.
func (c *cluster) others(name string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, id := range slices.Sorted(maps.Keys(c.ready)) {
		r := c.ready[id]
		if id != name && (name == "broker" || id == "broker" || c.restarted(name)) {
			out = append(out, r.Gossip)
		}
	}
	return out
}

// restarted reports whether the server has been ready before. A restarted server joins
// all other servers instead of just the broker, because the broker may be down at that
// moment.
func (c *cluster) restarted(name string) bool { return c.ready[name].PID != 0 }

// fail reports that a server could not be started. The cluster then stops.
func (c *cluster) fail(err error) {
	select {
	case c.failed <- err:
	default: // only the first error is reported
	}
}

// stop stops all servers and their machines, kills any remaining processes, and cleans
// up.
func (c *cluster) stop() error {
	if c.config.readyFile != "" {
		_ = os.Remove(c.config.readyFile) // the file may not have been written yet
	}
	c.shell.Note("stopping " + cli.Count(len(c.servers), "server") + " and their machines")
	for _, d := range c.servers {
		close(d.quit)
	}
	for _, d := range c.servers {
		<-d.ended
	}
	if c.nats != nil {
		close(c.nats.quit)
	}
	c.running.Wait()
	c.removeCredentials()
	if left := killDescendants(killGrace, stopTimeout); left > 0 {
		return bourse.Errorf(bourse.CodeInternal, "%s could not be killed", cli.Count(left, "process"))
	}
	if err := c.config.clear(); err != nil {
		return err
	}
	if !c.config.temporary {
		c.shell.Note("stopped; the servers' files are kept in " + c.config.data)
		return nil
	}
	if err := os.RemoveAll(c.config.data); err != nil {
		return fmt.Errorf("remove the servers' files: %w", err)
	}
	c.shell.Note("stopped; everything was removed")
	return nil
}

// removeCredentials removes the files that servers may have left in the user's
// credentials directory: the cluster's secret, the token of a broker that was killed,
// and the address of the context "dev".
func (c *cluster) removeCredentials() {
	err := loopback.RemoveSecret(c.shell.Getenv, c.name)
	if api, parsed := netip.ParseAddrPort(c.broker().API); parsed == nil {
		err = errors.Join(err, loopback.RemoveToken(c.shell.Getenv, api), loopback.UnsetDev(c.shell.Getenv, api))
	}
	if err != nil {
		c.shell.Note("warning: " + err.Error())
	}
}

// isDefaultAPI reports whether commands find this broker without --api.
func isDefaultAPI(api string) bool {
	_, port, err := net.SplitHostPort(api)
	_, usual, _ := net.SplitHostPort(cli.DefaultAPI)
	return err == nil && port == usual
}
