package packages

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// TestContainerImage imports the container image with containerd's own client, checks it, and
// runs the program and a server in it.
func TestContainerImage(t *testing.T) {
	server := containerdtest.New(t)
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		build(t, dir, "0.1.0", "image.tar")
	}
	if a, b := read(t, filepath.Join(first, "SHA256SUMS")), read(t, filepath.Join(second, "SHA256SUMS")); a != b {
		t.Errorf("two builds of the same commit have different checksums: %s and %s", a, b)
	}
	archive := filepath.Join(first, "bourse_0.1.0_"+runtime.GOARCH+".image.tar")
	checkAuthorities(t, archive)

	const ref, namespace = "localhost/bourse:0.1.0", "bourse-image-test"
	ctr := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "ctr", append([]string{"--address", server.Address, "--namespace", namespace}, args...)...)
	}
	output(t, ctr("image", "import", archive))
	image, err := server.Client(t, namespace).GetImage(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := image.Spec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	labels, commit := spec.Config.Labels, output(t, exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD"))
	if labels["org.opencontainers.image.version"] != "0.1.0" || labels["org.opencontainers.image.revision"] != strings.TrimSpace(commit) || spec.Created.IsZero() {
		t.Errorf("the image has the labels %[2]v and was created at %[3]v, want version 0.1.0, revision %[1]s and a time", commit, labels, spec.Created)
	}

	run := func(id string, args ...string) *exec.Cmd {
		return ctr(slices.Concat([]string{"run", "--rm", ref, id}, spec.Config.Entrypoint, args)...)
	}
	if got := output(t, run("bourse-image-version", "version")); !strings.Contains(got, "v0.1.0") {
		t.Errorf("the program in the image reports version %q, want v0.1.0", got)
	}
	const proxy = "bourse-image-proxy"
	serve := run(proxy, "serve", "proxy", "--name", "edge", "--region", "gru", "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--http", "127.0.0.1:0")
	serve.Stderr = os.Stderr
	out, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	var ready struct{ Role string }
	if err := json.Unmarshal([]byte(line), &ready); err != nil || ready.Role != "proxy" {
		t.Fatalf("the proxy in the image printed %q, want a JSON line with the role proxy", line)
	}
	output(t, ctr("task", "kill", "--signal", "SIGTERM", proxy))
	if err := serve.Wait(); err != nil {
		t.Errorf("the proxy in the image failed: %v", err)
	}
}

// checkAuthorities checks that an image contains certificates where Go programs look for them.
func checkAuthorities(t *testing.T, archive string) {
	t.Helper()
	const script = `tar -xOf "$1" --wildcards '*.tar.gz' | tar -xzO etc/ssl/certs/ca-certificates.crt`
	pem := output(t, exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script, "bash", archive))
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(pem)) {
		t.Errorf("the image's file of CA certificates contains no certificate: %q", pem)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// output returns what a command prints. It fails the test if the command fails.
func output(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command.Args, err, out)
	}
	return string(out)
}
