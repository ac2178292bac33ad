package test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestErrorsOfImagesThatDoNotRun orders machines that cannot be created. The caller must immediately get the error from the
// registry or the runtime, with a code that shows whether the order or the worker caused it.
func TestErrorsOfImagesThatDoNotRun(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1)
	ok := y.push("ok:1", server80("/bin/sleep", "600")).Name
	nobody := y.push("nobody:1", ocispec.ImageConfig{Cmd: []string{"/bin/true"}, User: "nobody-there"}).Name
	const cannot = "the container cannot be started: "
	for name, c := range map[string]struct {
		order  machinesapi.CreateMachine
		code   bourse.Code
		reason bourse.RefusalReason
		want   string
	}{
		"no such command": {y.order(ok, "nosuch"), bourse.CodeInvalid, bourse.RefusedProgram, cannot + `exec: "nosuch": executable file not found in $PATH (w1)`},
		"a directory":     {y.order(ok, "/bin"), bourse.CodeInvalid, bourse.RefusedProgram, cannot + `exec: "/bin": permission denied (w1)`},
		"no such user":    {y.order(nobody), bourse.CodeInvalid, bourse.RefusedProgram, `user "nobody-there" is not in the image: no users found (w1)`},
		"no such image": {
			y.order(y.registry.Name("nothing:1")), bourse.CodeNotFound, bourse.RefusedNoImage,
			"image " + y.registry.Name("nothing:1") + ": there is no such image (w1)",
		},
		"connection refused": {
			y.order("127.0.0.1:1/web:1"), bourse.CodeUnavailable, bourse.RefusedRegistry,
			"image 127.0.0.1:1/web:1: 127.0.0.1:1 cannot be reached: connection refused (gru: 1 worker asked)",
		},
		"no such host": {
			y.order("registry.invalid/web:1"), bourse.CodeUnavailable, bourse.RefusedRegistry,
			"image registry.invalid/web:1: registry.invalid cannot be reached: no such host (gru: 1 worker asked)",
		},
	} {
		began := time.Now()
		_, err := y.api.Create(t.Context(), app, c.order, "")
		if bourse.CodeOf(err) != c.code || bourse.MessageOf(err) != c.want {
			t.Errorf("%s: %s: %s\nwant %s: %s", name, bourse.CodeOf(err), bourse.MessageOf(err), c.code, c.want)
		}
		if took := time.Since(began); took > 20*time.Second { // a third of the order's deadline, because the host may be slow
			t.Errorf("%s: the error was returned after %s, want at most 20 s", name, took)
		}
		reply, ok := errors.AsType[*machinesapi.ReplyError](err)
		if !ok || len(reply.Refusals) != 1 || reply.Refusals[0].Reason != c.reason {
			t.Errorf("%s: refusals %+v, want one for %s", name, reply, c.reason)
			continue
		}
		if d, err := y.api.Order(t.Context(), reply.OrderID); err != nil || d.Message != c.want {
			t.Errorf("%s: the order's record contains %q, %v; want %q", name, d.Message, err, c.want)
		}
	}
	runs, err := y.api.Runs(t.Context(), "w1", true)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(runs, func(r machinesapi.Run) bool { return strings.HasPrefix(r.Error, cannot+`exec: "nosuch"`) }) {
		t.Errorf("the worker's runs do not contain the error: %+v", runs)
	}
}
