package test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func page(text string) registrytest.Layer {
	return registrytest.Layer{"/www/index.html": {Data: []byte(text)}}
}

func server80(cmd ...string) ocispec.ImageConfig { return ocispec.ImageConfig{Cmd: cmd} }

var httpd = []string{"/bin/httpd", "-f", "-p", "8080", "-h", "/www"}

// TestImageLifecycle builds an image from files, pushes it to a registry, pulls it by its tag and runs it. Then a newer
// image gets the tag, and the old one must be removed once nothing uses it.
func TestImageLifecycle(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1)
	one := y.push("web:1", server80(httpd...), page("the first"))
	m := y.run(app, y.order(one.Name))
	y.answers(app, m.ID, "the first")
	if r := m.ImageRef; r.Digest != one.Digest || r.Registry+"/"+r.Repository+":"+r.Tag != one.Name {
		t.Errorf("image_ref is %+v, want %s", r, one.Ref())
	}
	var pulls []machinesapi.PullEvent
	for _, e := range m.Events {
		if e.Type == bourse.EventPull && e.Request != nil && e.Request.Pull != nil {
			pulls = append(pulls, *e.Request.Pull)
		}
	}
	if len(pulls) != 2 || !pulls[0].Done || pulls[0].Bytes <= 0 || pulls[1].Bytes <= 0 || pulls[1].Done {
		t.Errorf("pull events %+v, want the end and the beginning of one pull", pulls)
	}
	if m.PrivateIP == "" {
		t.Error("the machine has no private address")
	}

	two := y.push("web:1", server80(httpd...), page("the second"))
	newer := y.run(app, y.order(one.Name))
	y.answers(app, newer.ID, "the second")
	y.answers(app, m.ID, "the first") // the running machine must be unaffected
	y.listsProcesses(m.ID)
	if newer.ImageRef.Digest != two.Digest {
		t.Errorf("the tag now refers to %s, but the new machine has %s", two.Digest, newer.ImageRef.Digest)
	}

	if got := y.digests(); !slices.Contains(got, one.Digest) || !slices.Contains(got, two.Digest) {
		t.Errorf("the worker has the images %v, want both", got)
	}
	y.destroy(m.ID)
	if _, _, err := y.api.PruneImages(t.Context(), machinesapi.ImageTarget{}); err != nil {
		t.Fatal(err)
	}
	if got := y.digests(); slices.Contains(got, one.Digest) || !slices.Contains(got, two.Digest) {
		t.Errorf("after a prune the worker has the images %v, want only the one in use, %s", got, two.Digest)
	}
	y.answers(app, newer.ID, "the second")
}

// listsProcesses checks the process list of a machine that serves a page. It must show the
// processes as the machine sees them, including processes that an exec has started in the
// background, and no processes of other machines.
func (y *yard) listsProcesses(id bourse.MachineID) {
	y.Helper()
	if out, code := y.sh(app, id, "cd /tmp; sleep 601 >/dev/null 2>&1 &"); code != 0 {
		y.Fatalf("start of sleep in the background: %q, code %d", out, code)
	}
	list, err := machinesapi.Processes(y.Context(), y.api, app, id)
	if err != nil || len(list) < 2 {
		y.Fatalf("processes %+v, %v; want at least 2", list, err)
	}
	first, listens := list[0], bourse.ListenSocket{Proto: "tcp", Address: "[::]:8080"}
	if first.PID != 1 || first.Command != strings.Join(httpd, " ") || first.Directory != "/www" || first.RSS == 0 || !slices.Equal(first.Listens, []bourse.ListenSocket{listens}) {
		y.Errorf("the first process is %+v, want PID 1 with command %q in /www, listening at %+v", first, httpd, listens)
	}
	behind := slices.DeleteFunc(list[1:], func(p bourse.Process) bool { return strings.HasPrefix(p.Command, "/bin/httpd") }) // ignore processes that are closing a connection
	if len(behind) != 1 || behind[0].PID <= 1 || behind[0].PID > 1000 || behind[0].Command != "sleep 601" || behind[0].Directory != "/tmp" || len(behind[0].Listens) > 0 {
		y.Errorf("the other processes are %+v, want only \"sleep 601\" in /tmp, without listening sockets", behind)
	}
}

func (y *yard) digests() []string {
	y.Helper()
	list, silent, err := y.api.Images(y.Context(), machinesapi.ImageTarget{})
	if err != nil || len(silent) > 0 {
		y.Fatalf("list images: %v; workers %v did not answer", err, silent)
	}
	var out []string
	for _, i := range list {
		out = append(out, i.Ref.Digest)
	}
	return out
}

// TestContainersOutliveTheDaemon kills a worker's daemon. Its containers must continue with
// the same processes, their output must be stored, and their exit codes must be recorded.
func TestContainersOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1)
	image := y.push("count:1", ocispec.ImageConfig{Cmd: []string{"/bin/sh", "-c", "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.05; done"}})
	goes := y.run(app, y.order(image.Ref()))
	ends := y.run(app, y.order(image.Ref(), "/bin/sh", "-c", "sleep 1; echo last words; exit 7"))
	w := y.workers[0]
	w.Settle()
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	if !within(waitTimeout, func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", ends.PID))
		return errors.Is(err, fs.ErrNotExist)
	}) {
		t.Fatalf("process %d did not exit while the daemon was down", ends.PID)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "the worker answers", func() error { _, err := y.api.Machine(t.Context(), app, goes.ID); return err })
	now, err := y.api.Machine(t.Context(), app, goes.ID)
	if err != nil || now.State != bourse.StateStarted || now.PID != goes.PID {
		t.Errorf("machine is %s with pid %d (%v), want started with pid %d", now.State, now.PID, err, goes.PID)
	}
	lines := y.lines(goes.ID, 40)
	for i, l := range lines {
		if want := fmt.Sprintf("line %d", i+1); l != want {
			t.Fatalf("line %d is %q, want %q", i+1, l, want)
		}
	}
	if _, err := y.api.Wait(t.Context(), app, ends.ID, machinesapi.WaitMachine{States: []string{"stopped"}}); err != nil {
		t.Fatal(err)
	}
	now, err = y.api.Machine(t.Context(), app, ends.ID)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(now.Events, func(e machinesapi.Event) bool { return e.Type == "exit" })
	if i < 0 || now.Events[i].Request == nil || now.Events[i].Request.ExitEvent.ExitCode != 7 {
		t.Errorf("events %+v, want an exit with code 7", now.Events)
	}
	if got := y.lines(ends.ID, 1); got[0] != "last words" {
		t.Errorf("the machine's log contains %q, want its last words", got)
	}
}

// lines waits for the first n lines of a machine's output.
func (y *yard) lines(id bourse.MachineID, n int) []string {
	y.Helper()
	var out []string
	eventually(y.T, waitTimeout, "lines of "+string(id), func() error {
		out = nil
		err := y.api.Logs(y.Context(), app, id, machinesapi.LogQuery{}, func(l machinesapi.LogLine) error {
			out = append(out, l.Text)
			return nil
		})
		if err == nil && len(out) < n {
			err = bourse.Errorf(bourse.CodeUnavailable, "the log has %d lines, want %d", len(out), n)
		}
		return err
	})
	return out[:n]
}

// TestContainerLimitsAreEnforced checks that an order's limits for memory, processes and disk space are enforced.
func TestContainerLimitsAreEnforced(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1)
	image := y.push("box:1", ocispec.ImageConfig{Cmd: []string{"/bin/sleep", "1000"}})
	hungry := y.run(app, y.order(image.Ref(), "/bin/sh", "-c", "head -c 200000000 /dev/zero | tail"))
	if _, err := y.api.Wait(t.Context(), app, hungry.ID, machinesapi.WaitMachine{States: []string{"stopped"}}); err != nil {
		t.Fatal(err)
	}
	m, err := y.api.Machine(t.Context(), app, hungry.ID)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(m.Events, func(e machinesapi.Event) bool { return e.Type == "exit" })
	if i < 0 || !m.Events[i].Request.ExitEvent.OOMKilled {
		t.Errorf("events %+v, want an exit because memory was exhausted", m.Events)
	}

	order := y.order(image.Ref())
	order.Config.Rootfs = &bourse.Rootfs{SizeGB: 1}
	box := y.run(app, order)
	if out, code := y.sh(app, box.ID, "dd if=/dev/zero of=/full bs=1M count=1500"); code == 0 || !strings.Contains(out, "No space left") {
		t.Errorf("write 1.5 GB to a root file system of 1 GB: %q, code %d; want \"No space left\"", out, code)
	}
	if out, code := y.sh(app, box.ID, "rm /full && echo ok > /fine && cat /fine"); code != 0 || out != "ok" {
		t.Errorf("write after space was freed: %q, code %d; want ok", out, code)
	}
	order.Config.Rootfs = &bourse.Rootfs{ReadOnly: true}
	sealed := y.run(app, order)
	if out, code := y.sh(app, sealed.ID, "echo x > /x"); code == 0 || !strings.Contains(out, "Read-only") {
		t.Errorf("write to a read-only root file system: %q, code %d; want a failure", out, code)
	}
	usage, err := y.api.Usage(t.Context(), app, box.ID)
	if err != nil || usage.Memory <= 0 || usage.PIDs < 1 || usage.MemLimit != 64<<20 {
		t.Errorf("usage %+v, %v; want memory and processes in use, and a limit of 64 MiB", usage, err)
	}
}
