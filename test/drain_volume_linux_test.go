package test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// A worker is drained of machines with volumes: each goes on elsewhere, with a copy of
// its volume that has what it wrote last.
func TestDrainMovesVolumes(t *testing.T) {
	t.Parallel()
	y := newYard(t, 2)
	image := y.push("files:1", ocispec.ImageConfig{Cmd: []string{"/bin/sleep", "1000"}})
	first := bourse.WorkerID("")
	const machines = 2
	for i := range machines {
		size := int64(1)
		v, err := y.api.Volumes(app).Create(t.Context(), machinesapi.CreateVolume{Name: "data", Region: "gru", SizeGB: &size, UniqueZone: new(false)}, "")
		if err != nil {
			t.Fatal(err)
		}
		order := y.withVolume(image.Ref(), v.ID)
		order.Config.Restart = nil // one that runs to its end would stay
		m := y.run(app, order)
		if out, code := y.sh(app, m.ID, fmt.Sprintf("echo %d > /data/number && sync", i)); code != 0 {
			t.Fatalf("write: %q, %d", out, code)
		}
		if first == "" {
			first = m.Worker
			other := bourse.WorkerID("w1")
			if first == other {
				other = "w2"
			}
			if _, err := y.api.Operator().Cordon(t.Context(), other, true); err != nil { // all are to be on the first
				t.Fatal(err)
			}
		}
	}
	for _, w := range []bourse.WorkerID{"w1", "w2"} {
		if _, err := y.api.Operator().Cordon(t.Context(), w, w == first); err != nil {
			t.Fatal(err)
		}
	}
	drain := []string{"worker", "drain", string(first), "--yes", "--api", "http://" + y.broker.API}
	out, err := exec.CommandContext(t.Context(), servertest.Program, append(drain, "--allow-downtime")...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("cordoned, %d machines moved, 0 left", machines)) {
		t.Fatalf("drain: %v\n%s", err, out)
	}
	list, _, err := y.api.Machines(t.Context(), app, machinesapi.ListMachines{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range list {
		if m.Worker == first || m.State != bourse.StateStarted {
			t.Errorf("machine %s is on %s, %s", m.ID, m.Worker, m.State)
			continue
		}
		text, _ := y.sh(app, m.ID, "cat /data/number")
		seen[text] = true
	}
	if len(list) != machines || len(seen) != machines || seen[""] {
		t.Errorf("%d machines with %v, want %d with what each had written", len(list), seen, machines)
	}
}
