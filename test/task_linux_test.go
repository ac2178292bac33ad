package test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// task runs a task with a program in an image.
func (y *yard) task(in machinesapi.RunTask, id bourse.OrderID) machinesapi.TaskReply {
	y.Helper()
	if in.Guest == nil {
		in.Guest = &bourse.Guest{MemoryMB: 64}
	}
	var reply machinesapi.TaskReply
	eventually(y.T, waitTimeout, fmt.Sprintf("task of image %s, command %q", in.Image, in.Command), func() (err error) {
		reply, err = y.api.RunTask(y.Context(), app, in, id)
		if err != nil && bourse.CodeOf(err) != bourse.CodeUnavailable { // unavailable means that a busy host's quote was late and the program did not run
			y.Fatalf("task of image %s, command %q: %v", in.Image, in.Command, err)
		}
		return err
	})
	return reply
}

// awaitNoMachines waits until the app has no machines and no containers.
func (y *yard) awaitNoMachines() {
	y.Helper()
	eventually(y.T, waitTimeout, "all machines are destroyed", func() error {
		list, _, err := y.api.Machines(y.Context(), app, machinesapi.ListMachines{})
		for _, m := range list {
			if m.State != bourse.StateDestroyed {
				err = errors.Join(err, fmt.Errorf("machine %s is %s, want destroyed", m.ID, m.State))
			}
		}
		for _, what := range y.containerd.Leftovers() {
			err = errors.Join(err, errors.New(what))
		}
		return err
	})
}

// TestTasksOfImages runs a program in an image for a payload. The image must be pulled, the
// program must receive the whole payload, its answer must be returned unchanged, and its
// machine must be gone afterwards.
func TestTasksOfImages(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1)
	image := y.push("box:1", ocispec.ImageConfig{Cmd: []string{"/bin/wc", "-c"}})
	random := make([]byte, bourse.MaxPayload)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(random) // Read never fails
	sum := sha256.Sum256(random)
	for name, c := range map[string]struct {
		in   machinesapi.RunTask
		end  bourse.TaskEnd
		code int
		want string
	}{
		"the image's own": {machinesapi.RunTask{PayloadBase64: random}, bourse.TaskAnswered, 0, "1048576\n"},
		"a command":       {machinesapi.RunTask{PayloadBase64: random, Command: []string{"busybox", "sha256sum"}}, bourse.TaskAnswered, 0, hex.EncodeToString(sum[:]) + "  -\n"},
		"bytes":           {machinesapi.RunTask{PayloadBase64: random, Command: []string{"cat"}}, bourse.TaskAnswered, 0, string(random)},
		"no payload":      {machinesapi.RunTask{}, bourse.TaskAnswered, 0, "0\n"},
		"a code": {
			machinesapi.RunTask{Command: []string{"sh", "-c", "printf half; echo why >&2; exit $CODE"}, Env: map[string]string{"CODE": "3"}},
			bourse.TaskFailed, 3, "half",
		},
		"a payload that is not read": {machinesapi.RunTask{PayloadBase64: random, Command: []string{"echo", "done"}}, bourse.TaskAnswered, 0, "done\n"},
		"a timeout": {
			machinesapi.RunTask{PayloadBase64: random, Command: []string{"sleep", "100"}, Timeout: bourse.Duration(time.Second)},
			bourse.TaskTimeout, -1, "",
		},
	} {
		in := c.in
		in.Image = image.Name
		got := y.task(in, "")
		if got.End != c.end || got.ExitCode != c.code || string(got.Bytes()) != c.want {
			t.Errorf("%s: %s, code %d, %.60q, want %s, %d, %.60q: %s", name, got.End, got.ExitCode, got.Bytes(), c.end, c.code, c.want, got.Error)
		}
	}
	y.awaitNoMachines()

	id := bourse.NewOrderID()
	first := y.task(machinesapi.RunTask{Image: image.Name, Command: []string{"cat", "/proc/sys/kernel/random/uuid"}}, id)
	again := y.task(machinesapi.RunTask{Image: image.Name, Command: []string{"cat", "/proc/sys/kernel/random/uuid"}}, id)
	if !first.OK || !again.Repeated || string(again.Bytes()) != string(first.Bytes()) || again.Machine != first.Machine {
		t.Errorf("first reply %+v, second reply %+v; want the same answer of the same machine, marked as repeated", first, again)
	}
	_, err := y.api.RunTask(t.Context(), app, machinesapi.RunTask{Image: y.registry.Name("nothing:1")}, "")
	if reply, ok := errors.AsType[*machinesapi.ReplyError](err); !ok || len(reply.Refusals) != 1 || reply.Refusals[0].Reason != bourse.RefusedNoImage || bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("task of a missing image: %v, %+v; want not_found, with one refusal no_image", err, reply)
	}
	if _, err := y.api.RunTask(t.Context(), app, machinesapi.RunTask{Image: bourse.ImagePull, Command: []string{"x"}}, ""); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("task with the image pull: %v, want invalid", err)
	}
	y.awaitNoMachines()
}

// TestTasksOfImagesStream streams answers to the command line and as raw bytes.
func TestTasksOfImagesStream(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1)
	image := y.push("box:1", ocispec.ImageConfig{Cmd: []string{"/bin/wc", "-c"}})
	cmd := exec.Command(servertest.Program, "--api", "http://"+y.broker.API, "task", "run", "--image", image.Name, "--vm-memory", "64MiB", "--payload", "-")
	cmd.Stdin = strings.NewReader("hello")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "5\n" {
		t.Errorf("bourse task run: %q, %v; want 5", out, err)
	}
	parts := 0
	var streamed strings.Builder
	reply, err := y.api.StreamTask(t.Context(), app, machinesapi.RunTask{
		Image: image.Name, Guest: &bourse.Guest{MemoryMB: 64}, Command: []string{"sh", "-c", "echo one; sleep 1; cat"}, Payload: []byte(`"two"`),
	}, "", func(part []byte) { parts++; streamed.Write(part) })
	if err != nil || !reply.OK || streamed.String() != "one\ntwo" || string(reply.Bytes()) != "one\ntwo" || parts < 2 {
		t.Errorf("streamed %q in %d parts; %+v, %v; want \"one\\ntwo\" in at least 2 parts", streamed.String(), parts, reply, err)
	}
	y.awaitNoMachines()
}

// TestImageTaskSurvivesADaemonKill kills the worker's daemon while a program in an image handles a payload. The program
// must continue, and a repeated request must return its answer.
func TestImageTaskSurvivesADaemonKill(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1)
	image := y.push("box:1", ocispec.ImageConfig{})
	id := bourse.NewOrderID()
	payload := strings.Repeat("payload ", bourse.MaxPayload/8)
	task := machinesapi.RunTask{
		Image: image.Name, Command: []string{"sh", "-c", "sleep 3; cat"}, PayloadBase64: []byte(payload),
		Guest: &bourse.Guest{MemoryMB: 64}, Timeout: bourse.Duration(30 * time.Second),
	}
	result := make(chan error, 1)
	go func() {
		_, err := y.api.RunTask(t.Context(), app, task, id)
		result <- err
	}()
	var machine bourse.MachineID
	eventually(t, waitTimeout, "it runs", func() error {
		list, _, err := y.api.Machines(t.Context(), app, machinesapi.ListMachines{})
		if err != nil || len(list) != 1 || list[0].State != bourse.StateStarted {
			return fmt.Errorf("machines %+v, %w; want one that is started", list, err)
		}
		machine = list[0].ID
		return nil
	})
	w := y.workers[0]
	w.Settle()
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("the first reply was %v, want a timeout", err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "the repeated request returns the answer", func() error {
		reply, err := y.api.RunTask(t.Context(), app, task, id)
		if err == nil && (!reply.OK || !reply.Repeated || reply.Machine != machine || string(reply.Bytes()) != payload) {
			t.Errorf("repeated request: %s on %s, %d bytes, repeated %t: %s; want the first answer from %s, with repeated true", reply.End, reply.Machine, len(reply.Bytes()), reply.Repeated, reply.Error, machine)
		}
		return err
	})
	y.awaitNoMachines()
}
