package cli

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	devPatience    = 5 * time.Second // that a server has to end in good order
	devGrace       = 2 * time.Second // that what is left behind has after that
	devReadyWithin = time.Minute     // for all servers to be ready and to know each other, on the busiest host
	devHeardStep   = 5 * time.Millisecond
)

// devCluster is the servers of "bourse dev". mu guards nothing but the list
// of what they have said of themselves.
type devCluster struct {
	shell   *shell
	config  devConfig
	servers []*devServer // the broker first
	nats    *devServer   // what they reach one another by; nil: nothing
	name    string       // of the cluster
	running sync.WaitGroup
	failed  chan error // of a server that could not be started at all

	mu    sync.Mutex
	ready map[string]Ready // by name; a restart replaces it
}

// runDev is the inner process: it starts the cluster, says that it is ready,
// and when ctx ends or the keeper has gone stops it and removes what it made.
func (s *shell) runDev(ctx context.Context, d devConfig) error {
	adoptOrphans()
	ctx, stop := s.lifetime(ctx, true)
	defer stop()
	began := s.Now()
	c := &devCluster{shell: s, config: d, ready: map[string]Ready{}, failed: make(chan error, 1)}
	err := c.start(ctx)
	if err == nil {
		err = c.tell(s.Now().Sub(began))
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-c.failed:
		}
	}
	if ctx.Err() != nil {
		err = nil // ending is what was asked for
	}
	return errors.Join(err, c.stop())
}

// start starts the broker, then the workers, which join it, side by side. It
// returns when the broker reaches all of them.
func (c *devCluster) start(ctx context.Context) error {
	defer spin(c.shell.Err, "starting the cluster")()
	ctx, cancel := context.WithTimeout(ctx, devReadyWithin)
	defer cancel()
	if err := os.MkdirAll(c.config.data, 0o700); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "--data: %w", err)
	}
	api, err := c.config.apiAddress()
	if err != nil {
		return err
	}
	c.name = devName(c.config.data)
	if err := c.addNATS(ctx); err != nil {
		return err
	}
	c.add(&devServer{name: "broker", role: bourse.RoleBroker, listen: api.String(), args: []string{
		"serve", "broker", "--data", filepath.Join(c.config.data, "broker"),
	}})
	if err := c.await(ctx, c.servers[0]); err != nil {
		return err
	}
	c.addWorkers()
	for _, w := range c.servers[1:] {
		if err := c.await(ctx, w); err != nil {
			return err
		}
	}
	return c.heard(ctx)
}

// devName gives the cluster in a data directory its name. Two clusters on one
// laptop must not become one, whatever ports they draw.
func devName(data string) string {
	if whole, err := filepath.Abs(data); err == nil {
		data = whole
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(data)) // a hash takes all writes
	return fmt.Sprintf("dev-%016x", h.Sum64())
}

// addNATS starts the NATS server of a cluster that has one. It is the first to
// be there and the last to go.
func (c *devCluster) addNATS(ctx context.Context) error {
	if c.config.fabric != fabricNATS {
		return nil
	}
	c.nats = &devServer{name: fabricNATS, role: RoleNATS, listen: "127.0.0.1:0", args: []string{"serve", "nats"}}
	c.nats.init(c)
	c.running.Go(c.nats.run)
	return c.await(ctx, c.nats)
}

func (c *devCluster) addWorkers() {
	ports := devPorts(len(c.config.regions)*c.config.workers, c.config.api != DefaultAPI)
	for i, region := range c.config.regions {
		for n := range c.config.workers {
			name := serverName(region, n+1)
			c.add(&devServer{name: name, role: bourse.RoleWorker, listen: "127.0.0.1:0", args: []string{
				"serve", "worker", "--ephemeral", "--region", region, "--data", filepath.Join(c.config.data, name),
				"--cpus", c.config.cpus, "--memory", c.config.memory, "--disk", "64GiB", "--resource", "slots=10",
				"--ports", ports(i*c.config.workers + n), "--registry-private", "--containerd", c.config.containerd, "--containerd-namespace", "bourse-" + c.name + "-" + name,
			}})
		}
	}
}

// devPorts gives each of n workers its own part of the ports below those that
// the kernel gives out by itself. A cluster beside the usual one begins
// anywhere, so that the two do not draw the same ports.
func devPorts(n int, anywhere bool) func(i int) string {
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

// add starts a server and keeps it running until stop.
func (c *devCluster) add(d *devServer) {
	d.init(c)
	c.servers = append(c.servers, d)
	c.running.Go(d.run)
}

// await waits for a server's first readiness.
func (c *devCluster) await(ctx context.Context, d *devServer) error {
	select {
	case <-d.isReady:
		return nil
	case err := <-c.failed:
		return err
	case <-ctx.Done():
		return bourse.Errorf(bourse.CodeTimeout, "%s is not ready after %s", d.name, devReadyWithin)
	}
}

// heard waits until the broker knows every worker.
func (c *devCluster) heard(ctx context.Context) error {
	api := "http://" + c.broker().API
	client := machinesapi.Client{BaseURL: api, Token: loopback.Find(c.shell.Getenv, api)}
	want := len(c.servers) - 1
	for {
		list, err := client.Workers(ctx)
		if err == nil && takingOrders(list) == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return bourse.Errorf(bourse.CodeTimeout, "the broker reaches %d of %d workers after %s", takingOrders(list), want, devReadyWithin)
		case <-time.After(devHeardStep):
		}
	}
}

// takingOrders counts the workers that an order would find.
func takingOrders(list []machinesapi.Worker) int {
	n := 0
	for _, w := range list {
		if w.Status == machinesapi.WorkerOK && !w.Leaving {
			n++
		}
	}
	return n
}

// broker gives what the broker last said of itself.
func (c *devCluster) broker() Ready {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready["broker"]
}

// said notes what a server said of itself. Once all have been ready, the
// ready file follows every restart.
func (c *devCluster) said(r Ready, first bool) {
	c.mu.Lock()
	c.ready[r.ID] = r
	c.mu.Unlock()
	if !first {
		if err := c.writeReady(); err != nil {
			c.shell.say("warning: " + err.Error())
		}
	}
}

// others gives the gossip addresses that a server joins.
func (c *devCluster) others(name string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, id := range sortedKeys(c.ready) {
		r := c.ready[id]
		if id != name && (name == "broker" || id == "broker" || c.restarted(name)) {
			out = append(out, r.Gossip)
		}
	}
	return out
}

// restarted tells whether the server has been ready before: then it joins all
// the others, because the broker may be away just now.
func (c *devCluster) restarted(name string) bool { return c.ready[name].PID != 0 }

// fail ends the cluster's start: a server could not be started at all.
func (c *devCluster) fail(err error) {
	select {
	case c.failed <- err:
	default: // the first one tells enough
	}
}

// stop ends every server and with them the machines, kills what is left, and
// removes what was made.
func (c *devCluster) stop() error {
	if c.config.readyFile != "" {
		_ = os.Remove(c.config.readyFile) // it may not have been written yet
	}
	c.shell.say("stopping " + count(len(c.servers), "server") + " and their machines")
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
	if left := killDescendants(devGrace, devPatience); left > 0 {
		return bourse.Errorf(bourse.CodeInternal, "%s could not be killed", count(left, "process"))
	}
	if !c.config.temporary {
		c.shell.say("stopped; the servers' files are kept in " + c.config.data)
		return nil
	}
	if err := os.RemoveAll(c.config.data); err != nil {
		return fmt.Errorf("remove the servers' files: %w", err)
	}
	c.shell.say("stopped; nothing is left behind")
	return nil
}

// removeCredentials removes what servers leave for their next start, which is
// not to come: the cluster's secret, and the token of a broker that was killed.
func (c *devCluster) removeCredentials() {
	err := loopback.Forget(c.shell.Getenv, c.name)
	if api, parsed := netip.ParseAddrPort(c.broker().API); parsed == nil {
		err = errors.Join(err, loopback.ForgetToken(c.shell.Getenv, api))
	}
	if err != nil {
		c.shell.say("warning: " + err.Error())
	}
}

// isDefaultAPI tells whether the verbs find this broker without being told.
func isDefaultAPI(api string) bool {
	_, port, err := net.SplitHostPort(api)
	_, usual, _ := net.SplitHostPort(DefaultAPI)
	return err == nil && port == usual
}
