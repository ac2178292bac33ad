package documents

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/internal/servertest"
)

func TestMain(m *testing.M) {
	if status, is := standIn(); is {
		os.Exit(status)
	}
	os.Exit(servertest.Main(m))
}

// patience bounds each line, on the busiest host.
const patience = 60 * time.Second

// yard is a few hosts on one network. Each is a process with namespaces of its
// own, and ends with it.
type yard struct {
	*testing.T
	dir   string
	hub   *terminal // the network between them
	hosts map[string]*host
	names string // for /etc/hosts
}

// host is a host: what it has of its own is below dir, by its path there.
type host struct {
	dir   string
	first *terminal // its first process
}

// home is a host's home directory, below its own.
const home = "/home"

// owned are the directories that each host has for itself.
var owned = []string{"/etc", "/usr/local/bin", "/var/lib", "/run"}

// newYard makes a network on which hosts have these names, by address.
func newYard(t *testing.T, names map[string]string) *yard {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	y := &yard{T: t, dir: t.TempDir(), hosts: map[string]*host{}}
	for address, name := range names {
		y.names += address + " " + name + "\n"
	}
	y.hub = y.terminal(syscall.CLONE_NEWNET, "bash", "--norc")
	y.hub.must("ip link set lo up && ip link add br0 type bridge && ip addr add 10.0.0.254/24 dev br0 && ip link set br0 up")
	return y
}

// host adds a host of a name at an address of 10.0.0.0/24.
func (y *yard) host(name, address string) *host {
	y.Helper()
	h := &host{dir: filepath.Join(y.dir, address)}
	for _, dir := range append([]string{home}, owned...) {
		if err := os.MkdirAll(h.dir+dir, 0o755); err != nil {
			y.Fatal(err)
		}
	}
	y.command("cp", "-a", "/etc/.", h.dir+"/etc")
	h.write(y.T, "/etc/hosts", "127.0.0.1 localhost\n"+y.names)
	self, err := os.Executable()
	if err != nil {
		y.Fatal(err)
	}
	for program := range standIns {
		if err := os.Symlink(self, h.dir+"/usr/local/bin/"+program); err != nil {
			y.Fatal(err)
		}
	}
	h.first = y.terminal(syscall.CLONE_NEWNET|syscall.CLONE_NEWNS|syscall.CLONE_NEWPID|syscall.CLONE_NEWUTS, "bash", "--norc")
	pid := h.first.cmd.Process.Pid
	card := fmt.Sprintf("h%d", len(y.hosts)+1)
	y.command("ip", "link", "add", "eth0", "netns", fmt.Sprint(pid), "type", "veth", "peer", "name", card, "netns", fmt.Sprint(y.hub.cmd.Process.Pid))
	y.hub.must("ip link set " + card + " master br0 up")
	h.first.must("ip link set lo up && ip addr add " + address + "/24 dev eth0 && ip link set eth0 up && ip route add default via 10.0.0.254")
	h.first.must("mount --make-rprivate / && mount -t proc proc /proc && hostname " + name)
	for _, dir := range owned {
		h.first.must("mount --bind " + h.dir + dir + " " + dir)
	}
	h.first.must(y.environment(h))
	y.hosts[name] = h
	return h
}

// environment is the first line that is typed in each terminal.
func (y *yard) environment(h *host) string {
	return "export HOME=" + h.dir + home + " " + yardVariable + "=" + y.dir + "; unset BOURSE_RUNTIME_DIR; cd"
}

// another opens another terminal of a host.
func (y *yard) another(h *host) *terminal {
	y.Helper()
	t := y.terminal(0, "nsenter", "-t", fmt.Sprint(h.first.cmd.Process.Pid), "-m", "-n", "-u", "-p", "bash", "--norc")
	t.must(y.environment(h))
	return t
}

func (y *yard) command(words ...string) {
	y.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		y.Fatalf("%s: %v: %s", strings.Join(words, " "), err, out)
	}
}

// write writes a file of the host, below its home unless the path is absolute.
func (h *host) write(t *testing.T, path, text string) {
	t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(home, path)
	}
	if err := os.MkdirAll(filepath.Dir(h.dir+path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.dir+path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// terminal is a shell in which lines are typed.
type terminal struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer

	mu      sync.Mutex
	printed strings.Builder
	news    chan struct{} // has one when there is more
	read    int           // of what was printed, by the lines so far
	typed   int
}

// terminal starts a shell in new namespaces; it ends with the test.
func (y *yard) terminal(flags uintptr, words ...string) *terminal {
	y.Helper()
	t := &terminal{t: y.T, cmd: exec.Command(words[0], words[1:]...), news: make(chan struct{}, 1)}
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	t.cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	in, err := t.cmd.StdinPipe()
	if err != nil {
		y.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		y.Fatal(err)
	}
	t.in, t.cmd.Stdout, t.cmd.Stderr = in, w, w
	if err := t.cmd.Start(); err != nil {
		_ = w.Close()
		y.Skipf("no namespaces here: %v", err)
	}
	_ = w.Close()
	var wg sync.WaitGroup
	wg.Go(func() { t.collect(out) })
	y.Cleanup(func() {
		_ = t.cmd.Process.Kill() // and all that it has started
		_ = t.cmd.Wait()
		_ = out.Close() // what a process of another namespace still holds of it ends with that one
		wg.Wait()
	})
	return t
}

func (t *terminal) collect(out io.Reader) {
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		t.mu.Lock()
		t.printed.WriteString(line)
		t.mu.Unlock()
		select {
		case t.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// await returns what was printed since the line before, up to a match.
func (t *terminal) await(what string, until *regexp.Regexp) (before string, match []string) {
	t.t.Helper()
	late := time.After(patience)
	for {
		t.mu.Lock()
		text := t.printed.String()[t.read:]
		t.mu.Unlock()
		if at := until.FindStringSubmatchIndex(text); at != nil {
			t.read += at[1]
			return text[:at[0]], until.FindStringSubmatch(text)
		}
		select {
		case <-t.news:
		case <-late:
			t.t.Fatalf("%s does not end; it has printed:\n%s", what, text)
		}
	}
}

// line types a line and returns what it printed, and its exit status.
func (t *terminal) line(line string) (printed, status string) {
	t.t.Helper()
	t.typed++
	fmt.Fprintf(t.in, "{ %s\n} </dev/null; echo \"[line %d: $?]\"\n", line, t.typed)
	printed, match := t.await(line, regexp.MustCompile(fmt.Sprintf(`\[line %d: (\d+)\]\n`, t.typed)))
	return printed, match[1]
}

// must types a line that must succeed.
func (t *terminal) must(line string) string {
	t.t.Helper()
	printed, status := t.line(line)
	if status != "0" {
		t.t.Fatalf("%s\nended with status %s:\n%s", line, status, printed)
	}
	return printed
}
