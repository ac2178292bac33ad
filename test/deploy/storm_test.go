package deploy

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// stormFor is the duration for which clients and servers are killed.
var stormFor = flag.Duration("storm", 15*time.Second, "how long clients and servers are killed in TestDeployStorm")

const (
	stormToken    = "a-token-for-storms"
	stormMachines = 3  // number of each app's machines
	stormRate     = 20 // requests per second for each app
)

// strategies are the strategies that deploys use alternately.
var strategies = []deploy.Strategy{deploy.Rolling, deploy.Canary, deploy.BlueGreen, deploy.Immediate}

// storm is a cluster whose clients and servers are killed.
type storm struct {
	*house
	proxies []*servertest.Server // only the second one is killed
	web     []string             // addresses at which the proxies serve users, even after a restart
	down    atomic.Int64         // incremented when the second proxy is killed and when it serves again, so it is odd while the proxy is down

	mu     sync.Mutex
	counts map[string]int
}

// TestDeployStorm deploys apps with alternating strategies, using the command line. The commands are killed,
// interrupted and suspended, and the broker, workers and a proxy are killed and restarted. The result that a deploy,
// resume or rollback reports must be correct, versions must not be mixed, and no release may remain unfinished. No
// request may fail, except through the killed proxy or while an app is deployed with strategy immediate.
func TestDeployStorm(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	ctx, cancel := context.WithTimeout(t.Context(), *stormFor)
	defer cancel()
	var killers, apps sync.WaitGroup
	for i := range 2 {
		a := &stormApp{storm: s, name: bourse.AppName(fmt.Sprintf("storm%d", i)), rng: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(i)))}
		a.first()
		apps.Go(func() { a.deploys(ctx) })
	}
	killers.Go(func() { s.kill(ctx) })
	apps.Wait()
	killers.Wait()
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		t.Logf("%5d %s", s.counts[what], what)
	}
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(stormToken+" *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &house{T: t, broker: servertest.Start(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0", "--credentials", filepath.Dir(tokens))}
	h.api = &machinesapi.Client{BaseURL: "http://" + h.broker.API, Token: stormToken}
	s := &storm{house: h, counts: map[string]int{}}
	for i := range 2 {
		name := fmt.Sprintf("w%d", i+1)
		h.workers = append(h.workers, servertest.New(t, name, "serve", "worker", "--name", name, "--region", "gru", "--data", filepath.Join(t.TempDir(), name),
			"--cpus", "1000", "--memory", "1TiB", "--disk", "1TiB", "--ephemeral", "--join", h.broker.Addr))
		name = fmt.Sprintf("p%d", i+1)
		s.proxies = append(s.proxies, servertest.New(t, name, "serve", "proxy", "--name", name, "--region", "gru", "--drain", "1s", "--http", "127.0.0.1:0=any", "--join", h.broker.Addr))
	}
	servers := slices.Concat([]*servertest.Server{h.broker}, h.workers, s.proxies)
	servertest.StartAll(t, servers[1:]...)
	for _, x := range s.proxies {
		s.web = append(s.web, x.Web[0])
	}
	for _, x := range servers {
		x.Settle()
		if i := slices.Index(x.Args, "--http"); i > 0 {
			x.Args[i+1] = x.Web[0] + "=any"
		}
		if x != s.proxies[0] {
			x.Args = append(x.Args, "--join", s.proxies[0].Addr)
		}
	}
	h.eventually("all servers know each other", func() error { return servertest.Agreed(t.Context(), len(servers), h.api) })
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	h.client = &http.Client{Transport: transport, Timeout: waitTimeout}
	return s
}

func (s *storm) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// pause waits for d. It returns false if ctx is done.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// kill kills one server after another and restarts each.
func (s *storm) kill(ctx context.Context) {
	victims := []*servertest.Server{s.broker, s.workers[0], s.workers[1], s.proxies[1]}
	for pause(ctx, 2*time.Second+rand.N(4*time.Second)) {
		v := victims[rand.IntN(len(victims))]
		if v == s.proxies[1] {
			s.down.Add(1)
		}
		err := v.Kill()
		if err == nil {
			err = v.Start()
		}
		if err != nil {
			s.Errorf("%s: %v", v.Name, err)
			return
		}
		if v == s.proxies[1] {
			s.eventually("the killed proxy serves again", func() error {
				var err error
				for i := range 2 {
					if unserved := s.askAt(s.web[1], bourse.AppName(fmt.Sprintf("storm%d", i))); unserved != nil {
						err = unserved
					}
				}
				return err
			})
			s.down.Add(1)
		}
		s.count("kills of " + v.Name)
	}
}

// askAt requests an app's page at a proxy's address, like a user.
func (s *storm) askAt(web string, app bourse.AppName) error {
	req, err := http.NewRequest(http.MethodGet, "http://"+web+"/", nil)
	if err != nil {
		return err
	}
	req.Host = string(app) + ".localhost"
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s, want 200: %s", resp.Status, text)
	}
	return err
}

// stormApp is an app that is deployed repeatedly.
type stormApp struct {
	*storm
	name      bourse.AppName
	rng       *rand.Rand
	file      string
	version   int         // version of all machines
	next      int         // version of the latest deploy
	immediate atomic.Bool // requests may fail
}

// first deploys the app and waits until both proxies serve it.
func (a *stormApp) first() {
	a.Helper()
	self, err := os.Executable()
	if err != nil {
		a.Fatal(err)
	}
	a.file = filepath.Join(a.TempDir(), "fly.toml")
	text := fmt.Sprintf(`app = %q
primary_region = "gru"
[build]
image = "host"
[processes]
app = %q
[http_service]
internal_port = 0
processes = ["app"]
[[http_service.checks]]
path = "/healthy"
interval = "1s"
timeout = "30s"
grace_period = "30s"
[[vm]]
memory = "256mb"
`, a.name, self)
	if err := os.WriteFile(a.file, []byte(text), 0o600); err != nil {
		a.Fatal(err)
	}
	a.next, a.version = 1, 1
	for _, args := range [][]string{a.deploy(1, deploy.Immediate), {"scale", "count", fmt.Sprint(stormMachines), "--watch-for", "0s"}} {
		if end := a.bourse(args...).wait(); end.status != 0 {
			a.Fatalf("bourse %s exited with status %d, want 0:\n%s", strings.Join(args, " "), end.status, end.out)
		}
	}
	a.eventually("both proxies answer for the app", func() error {
		for _, web := range a.web {
			if err := a.askAt(web, a.name); err != nil {
				return err
			}
		}
		return nil
	})
}

// deploy returns the arguments of a command that deploys a version.
func (a *stormApp) deploy(version int, strategy deploy.Strategy) []string {
	return []string{"deploy", "-e", fmt.Sprintf("%s=%d", machineVariable, version), "--strategy", string(strategy), "--wait-timeout", "1m", "--watch-for", "500ms"}
}

// process is a running command.
type process struct {
	*exec.Cmd
	lines chan string // lines of output; closed at the end
	mu    sync.Mutex
	text  strings.Builder
}

// ended is the outcome of a command.
type ended struct {
	out    string
	status int // exit status; -1 if the command was killed
}

// bourse starts the bourse program.
func (a *stormApp) bourse(args ...string) *process {
	a.Helper()
	args = append(args, "-c", a.file, "-a", string(a.name))
	c := &process{Cmd: exec.CommandContext(a.Context(), servertest.Program, args...), lines: make(chan string)}
	c.Env = append(os.Environ(), "BOURSE_API=http://"+a.broker.API, "BOURSE_API_TOKEN="+stormToken)
	r, w, err := os.Pipe()
	if err != nil {
		a.Fatal(err)
	}
	c.Stdout, c.Stderr = w, w
	if err := c.Start(); err != nil {
		a.Fatal(err)
	}
	_ = w.Close() // the program has its own copy
	go func() {
		defer close(c.lines)
		defer r.Close()
		for in := bufio.NewScanner(r); in.Scan(); {
			c.mu.Lock()
			c.text.WriteString(in.Text() + "\n")
			c.mu.Unlock()
			c.lines <- in.Text()
		}
	}()
	return c
}

// at sends a signal when the program writes its n-th line. It returns false if the program ends before that.
func (c *process) at(n int, signal syscall.Signal) bool {
	for range c.lines {
		if n--; n <= 0 {
			return c.Process.Signal(signal) == nil
		}
	}
	return false
}

// wait waits until the program has ended.
func (c *process) wait() ended {
	for range c.lines { // read all lines, so that the program does not block
	}
	_ = c.Wait() // the process's state contains the outcome
	return ended{c.text.String(), c.ProcessState.ExitCode()}
}

// deploys deploys the app repeatedly under load until ctx is done.
func (a *stormApp) deploys(ctx context.Context) {
	over := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() { a.load(over) })
	for i := a.rng.IntN(len(strategies)); ctx.Err() == nil && !a.Failed(); i++ {
		strategy := strategies[i%len(strategies)]
		a.immediate.Store(strategy == deploy.Immediate)
		switch signal := []syscall.Signal{0, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGINT, syscall.SIGSTOP}[a.rng.IntN(5)]; signal {
		case syscall.SIGSTOP:
			a.suspended(strategy)
		default:
			a.interrupted(strategy, signal)
		}
		a.immediate.Store(false)
	}
	close(over)
	load.Wait()
}

// load sends requests to the app through both proxies until over is closed.
func (a *stormApp) load(over <-chan struct{}) {
	var asked sync.WaitGroup
	defer asked.Wait()
	tick := time.NewTicker(time.Second / stormRate)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		asked.Go(func() {
			web, down, immediate, began := a.web[i%2], a.down.Load(), a.immediate.Load(), time.Now()
			err := a.askAt(web, a.name)
			switch {
			case err == nil:
				a.count("requests were answered")
			case immediate || a.immediate.Load():
				a.count("requests failed during an immediate deploy")
			case web == a.web[1] && (down%2 == 1 || a.down.Load() != down):
				a.count("requests were sent to the killed proxy")
			default:
				a.Errorf("request at %s, for app %s through %s: %v", web, a.name, began.Format(time.StampMilli), err)
			}
		})
	}
}

// interrupted deploys the next version with a command that receives a signal at a random line of its output; signal 0
// means no signal. The app must match the command's output and the release. If the release is unfinished, interrupted
// resumes it or rolls it back.
func (a *stormApp) interrupted(strategy deploy.Strategy, signal syscall.Signal) {
	before := a.newest().ID
	a.next++
	what := fmt.Sprintf("%s of %s, signal %d", strategy, a.name, signal)
	c := a.bourse(a.deploy(a.next, strategy)...)
	if signal != 0 && c.at(1+a.rng.IntN(16), signal) {
		a.count("signals: " + signal.String())
	}
	end := c.wait()
	a.count(string(strategy) + " deploys")
	for tries := 0; ; tries++ {
		r := a.newest()
		switch {
		case r.ID == before:
			a.is(what+", which was not recorded", end, a.version)
			return
		case r.Status == release.Complete:
			a.is(what+", complete", end, a.next)
			return
		case r.Status == release.Failed:
			a.is(what+", failed", end, a.version)
			return
		case tries == 5:
			a.Errorf("%s: release v%d is still %s after %d attempts:\n%s", what, r.Version, r.Status, tries, end.out)
			return
		case strings.Contains(end.out, "everything is as it was before") && tries == 0:
			a.is(what+", which reports that everything is as it was", end, a.version)
		}
		undo := a.rng.IntN(2) == 0
		args := []string{"deploy", "--resume", "--watch-for", "500ms"}
		if undo {
			args = []string{"rollback", "--watch-for", "500ms"}
		}
		end = a.bourse(args...).wait()
		a.count(args[0] + " of incomplete releases")
		switch status := a.newest().Status; {
		case end.status == 0 && (undo && status != release.Failed || !undo && status != release.Complete):
			a.Errorf("%s: after bourse %s, which succeeded, the release is %s:\n%s", what, args[0], status, end.out)
		case end.status != 0:
			a.count(args[0] + " failed")
			a.Logf("%s: bourse %s ended with %d, the release is %s:\n%s", what, strings.Join(args, " "), end.status, status, end.out)
		}
	}
}

// suspended deploys with a command that is suspended at a random line of its output, and
// continues after another command has deployed.
func (a *stormApp) suspended(strategy deploy.Strategy) {
	what := fmt.Sprintf("%s of %s, suspended", strategy, a.name)
	a.next++
	first := a.bourse(a.deploy(a.next, strategy)...)
	stopped := first.at(1+a.rng.IntN(16), syscall.SIGSTOP)
	if !stopped {
		first.wait()
	}
	a.next++
	var end ended
	for tries := 0; ; tries++ {
		end = a.bourse(a.deploy(a.next, strategies[tries%2])...).wait()
		if end.status == 0 || tries == 5 {
			break
		}
		a.count("deploys failed after a suspended one")
		a.Logf("%s: the second deploy exited with %d:\n%s", what, end.status, end.out)
		a.newest() // wait until the broker answers
	}
	if end.status != 0 {
		a.Errorf("%s: the second deploy exited with status %d, want 0:\n%s", what, end.status, end.out)
	}
	a.count(string(strategy) + " deploys")
	if !stopped {
		a.is(what+" too late", end, a.next)
		return
	}
	a.count("signals: " + syscall.SIGSTOP.String())
	_ = first.Process.Signal(syscall.SIGCONT)
	woken := first.wait()
	end.out += "\nthe first:\n" + woken.out
	if woken.status == 0 && strings.Contains(a.shape(), fmt.Sprintf("version=%d ", a.next-1)) { // the suspended command deployed afterwards
		a.is(what+" before it began", end, a.next-1)
		return
	}
	a.is(what, end, a.next)
}

// list returns the app's machines. It waits until all servers involved answer.
func (a *stormApp) list() (list []machinesapi.Machine) {
	a.Helper()
	a.eventually("machines of "+string(a.name), func() error {
		var silent []bourse.WorkerID
		var err error
		list, silent, err = a.api.Machines(a.Context(), a.name, machinesapi.ListMachines{})
		if err == nil && (len(silent) > 0 || slices.ContainsFunc(list, func(m machinesapi.Machine) bool { return m.Config == nil })) {
			err = fmt.Errorf("no answer from workers %v", silent)
		}
		return err
	})
	return list
}

// shape describes the app's machines.
func (a *stormApp) shape() string {
	a.Helper()
	var out []string
	for _, m := range a.list() {
		out = append(out, fmt.Sprintf("%s version=%s cordoned=%v", m.State, m.Config.Env[machineVariable], m.Cordoned))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// leaves matches the warning that a machine is left unchanged because its worker does not
// answer.
var leaves = regexp.MustCompile(`machine .* (is not changed|keeps the config of the release)`)

// is checks that all machines have the given version, now and a moment later, and that no
// release is unfinished.
func (a *stormApp) is(what string, end ended, version int) {
	a.Helper()
	// If machines were left unchanged, deploy again, as the output suggests. This may fail
	// because the broker is down.
	for tries := 0; tries < 5 && (leaves.MatchString(end.out) || tries > 0 && end.status != 0); tries++ {
		a.count("deploys of machines that were left because their worker was killed")
		end = a.bourse(a.deploy(version, deploy.Rolling)...).wait()
	}
	want := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("started version=%d cordoned=false, ", version), stormMachines), ", ")
	for range 2 {
		if shape := a.shape(); shape != want {
			a.Errorf("%s: the app is %s, want %s; the command exited with status %d:\n%s", what, shape, want, end.status, end.out)
			return
		}
		pause(a.Context(), 700*time.Millisecond) // a request without an answer may still take effect
	}
	a.version = version
	for _, r := range a.releases() {
		if r.Status == release.Pending || r.Status == release.Running {
			a.Errorf("%s: release v%d is still %s, want a final status:\n%s", what, r.Version, r.Status, end.out)
		}
	}
}

func (a *stormApp) releases() (list []release.Release) {
	a.Helper()
	a.eventually("releases of "+string(a.name), func() (err error) {
		list, err = a.api.Releases(a.name).List(a.Context(), 0)
		return err
	})
	return list
}

func (a *stormApp) newest() release.Release {
	a.Helper()
	return append(a.releases(), release.Release{})[0]
}
