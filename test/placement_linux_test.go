package test

import (
	"slices"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestImageAttractsOrders has two workers. The one that has the image has a little less free memory. An order for the
// image must go to that worker, and its decision must show why. An order for an image that neither worker has must go
// to the other worker.
func TestImageAttractsOrders(t *testing.T) {
	t.Parallel()
	y := newYard(t, 2)
	image := y.push("large:1", server80("/bin/sleep", "1000"), registrytest.Random(1, 48<<20))
	strange := y.push("strange:1", server80("/bin/sleep", "1000"))
	has, lacks := bourse.WorkerID("w1"), bourse.WorkerID("w2")
	// Without positions, which depend on the broker's name, and without the score for even use, only image and memory differ.
	policy := `{"name": "test", "curves": {"position": {"weight": 0}, "stranded": {"weight": 0}}}`
	if _, err := y.api.Operator().SetPolicy(t.Context(), machinesapi.SetPolicy{Policy: []byte(policy)}); err != nil {
		t.Fatal(err)
	}
	var lines []machinesapi.PullLine
	if _, err := y.api.CreateApp(t.Context(), machinesapi.CreateApp{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	err := y.api.PullImage(t.Context(), machinesapi.PullImage{Image: image.Name, ImageTarget: machinesapi.ImageTarget{Worker: has}},
		func(l machinesapi.PullLine) error { lines = append(lines, l); return l.Err() })
	if err != nil || len(lines) == 0 || !lines[len(lines)-1].Done {
		t.Fatalf("pull: %v, %+v; want a last line with done", err, lines)
	}
	for worker, gigabytes := range map[bourse.WorkerID]bourse.MiB{has: 935, lacks: 870} { // used amounts, of 1024
		order := on(string(worker), sleeper("gru", "fuller"))
		order.Config.Guest = &bourse.Guest{MemoryMB: gigabytes << 10}
		if _, err := y.api.Create(t.Context(), "other", order, ""); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, waitTimeout, "the images are in the view", func() error {
		rows, err := query(t.Context(), y.api, "SELECT worker FROM images WHERE digest = ?", image.Digest)
		if err == nil && len(rows) != 1 {
			err = bourse.Errorf(bourse.CodeUnavailable, "%v", rows)
		}
		return err
	})
	m := y.run(app, y.order(image.Ref()))
	if m.Worker != has {
		t.Errorf("the order was filled on %s, want %s, which has the image", m.Worker, has)
	}
	d, err := y.api.Order(t.Context(), m.OrderID)
	if err != nil {
		t.Fatal(err)
	}
	part := func(worker bourse.WorkerID, name string) float64 {
		for _, round := range d.Rounds {
			for _, r := range round.Ranked {
				i := slices.IndexFunc(r.Parts, func(p bourse.ScorePart) bool { return p.Name == name })
				if r.Worker == worker && i >= 0 {
					return r.Parts[i].Score
				}
			}
		}
		t.Fatalf("the record of order %s does not rank %s by %s: %+v", m.OrderID, worker, name, d)
		return 0
	}
	if part(has, "image") <= part(lacks, "image") {
		t.Errorf("the image's score for %s, which has the image, is %g, want more than the %[4]g of %[3]s, which does not", has, part(has, "image"), lacks, part(lacks, "image"))
	}
	if part(has, "memory") >= part(lacks, "memory") {
		t.Errorf("the memory's score for %s, which has less free memory, is %g, want less than the %[4]g of %[3]s", has, part(has, "memory"), lacks, part(lacks, "memory"))
	}
	other := y.order(strange.Ref())
	other.Config.Guest = &bourse.Guest{MemoryMB: 32}
	if m := y.run("other", other); m.Worker != lacks {
		t.Errorf("an order for an image that neither worker has was filled on %s, want %s, which has more free memory", m.Worker, lacks)
	}
}
