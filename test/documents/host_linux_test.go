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

// waitTimeout is the time limit for each line, which suffices on a busy host.
const waitTimeout = 60 * time.Second

// yard is a group of hosts on one network. Each host is a process in its own namespaces.
type yard struct {
	*testing.T
	dir   string
	hub   *terminal // namespace of the network between the hosts
	hosts map[string]*host
	names string // contents of each host's /etc/hosts
}

// host is a host in a yard. Its own files are below dir.
type host struct {
	dir   string
	first *terminal // its first shell
}

// home is the path of a host's home directory, below the host's dir.
const home = "/home"

// owned lists the directories that are separate on each host.
var owned = []string{"/etc", "/usr/local/bin", "/var/lib", "/run"}

// newYard creates a network. names maps addresses to host names.
func newYard(t *testing.T, names map[string]string) *yard {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("creating namespaces requires root")
	}
	y := &yard{T: t, dir: t.TempDir(), hosts: map[string]*host{}}
	for address, name := range names {
		y.names += address + " " + name + "\n"
	}
	y.hub = y.terminal(syscall.CLONE_NEWNET, "bash", "--norc")
	y.hub.must("ip link set lo up && ip link add br0 type bridge && ip addr add 10.0.0.254/24 dev br0 && ip link set br0 up")
	return y
}

// host adds a host with a name and an address in 10.0.0.0/24.
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

// environment returns the first line to type in each terminal.
func (y *yard) environment(h *host) string {
	return "export HOME=" + h.dir + home + " " + yardVariable + "=" + y.dir + "; unset BOURSE_RUNTIME_DIR; cd"
}

// another opens another terminal on a host.
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

// write writes a file on the host. A relative path is below the host's home directory.
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

// terminal is a shell into which lines are typed.
type terminal struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer

	mu      sync.Mutex
	printed strings.Builder
	news    chan struct{} // receives a value when something was printed
	read    int           // length of the output that belongs to earlier lines
	typed   int
}

// terminal starts a shell, in new namespaces if flags is set. The shell exits at the end of the
// test.
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
		y.Skipf("this process cannot create namespaces: %v", err)
	}
	_ = w.Close()
	var wg sync.WaitGroup
	wg.Go(func() { t.collect(out) })
	y.Cleanup(func() {
		_ = t.cmd.Process.Kill() // also ends the processes in its namespaces
		_ = t.cmd.Wait()
		_ = out.Close() // processes in other namespaces may still have the file open
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

// await waits until the output since the last line matches until. It returns the output
// before the match, and the match.
func (t *terminal) await(what string, until *regexp.Regexp) (before string, match []string) {
	t.t.Helper()
	late := time.After(waitTimeout)
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
			t.t.Fatalf("%s did not end; it printed:\n%s", what, text)
		}
	}
}

// line types a line, and returns its output and exit status.
func (t *terminal) line(line string) (printed, status string) {
	t.t.Helper()
	t.typed++
	fmt.Fprintf(t.in, "{ %s\n} </dev/null; echo \"[line %d: $?]\"\n", line, t.typed)
	printed, match := t.await(line, regexp.MustCompile(fmt.Sprintf(`\[line %d: (\d+)\]\n`, t.typed)))
	return printed, match[1]
}

// must types a line that must succeed, and returns its output.
func (t *terminal) must(line string) string {
	t.t.Helper()
	printed, status := t.line(line)
	if status != "0" {
		t.t.Fatalf("%s\nexited with status %s, want 0:\n%s", line, status, printed)
	}
	return printed
}
