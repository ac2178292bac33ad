package admit

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

func newStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// On one worker, an order id belongs to one order. Repeating that order returns its fill. An order of another kind or
// app with the same id is refused. An order that could not be filled may be filled later.
func TestPast(t *testing.T) {
	now := time.Now().UTC()
	app := bourse.App{Name: "web", ID: "01", CreatedAt: time.Unix(1, 0).UTC()}
	ours := bourse.Decision{App: app.Name, AppID: app.ID, At: now}
	theirs := bourse.Decision{App: app.Name, AppID: "02", At: now}
	machine := bourse.Machine{
		ID: bourse.NewMachineID(7), Name: "m", App: app.Name, AppID: app.ID, State: bourse.StateCreated, CreatedAt: now, UpdatedAt: now,
	}
	volume := bourse.Volume{ID: bourse.NewVolumeID(7), App: app.Name, AppID: app.ID, State: bourse.VolumeCreating, CreatedAt: now, UpdatedAt: now}
	key := bourse.NewReservationKey()
	task := func(app string) *store.TaskRecord {
		return &store.TaskRecord{App: "web", AppID: app, Result: bourse.TaskResult{Machine: machine.ID, StartedAt: now}}
	}
	hold := func(app string, ttl time.Duration) *bourse.Hold {
		return &bourse.Hold{Reservation: key, App: "web", AppID: app, CreatedAt: now, ExpiresAt: now.Add(ttl)}
	}
	kinds := map[bourse.Kind]func(*bourse.Order){
		bourse.KindMachine: func(*bourse.Order) {},
		bourse.KindVolume:  func(o *bourse.Order) { o.Volume = &bourse.VolumeOrder{} },
		bourse.KindTask:    func(o *bourse.Order) { o.Task = &bourse.TaskOrder{} },
		bourse.KindHold:    func(o *bourse.Order) { o.Hold = &bourse.HoldOrder{Reservation: key} },
	}
	all := []bourse.Kind{bourse.KindMachine, bourse.KindVolume, bourse.KindTask, bourse.KindHold}
	notTasks := []bourse.Kind{bourse.KindMachine, bourse.KindVolume, bourse.KindHold}
	notHolds := []bourse.Kind{bourse.KindMachine, bourse.KindVolume, bourse.KindTask}
	for name, c := range map[string]struct {
		rec  *store.OrderRecord
		hold *bourse.Hold
		fill bourse.Kind   // kind of order that is already filled, "-" for none
		open []bourse.Kind // kinds of orders that may be filled
	}{
		"no record":                    {nil, nil, "-", all},
		"a machine":                    {&store.OrderRecord{Machine: machine.ID, Decision: ours}, nil, bourse.KindMachine, nil},
		"a machine that failed":        {&store.OrderRecord{Decision: ours}, nil, "-", notTasks},
		"a machine that was destroyed": {&store.OrderRecord{Machine: bourse.NewMachineID(7), Decision: ours}, nil, "-", nil},
		"another app's machine":        {&store.OrderRecord{Machine: machine.ID, Decision: theirs}, nil, "-", nil},
		"another app's failed machine": {&store.OrderRecord{Decision: theirs}, nil, "-", nil},
		"a canceled machine":           {&store.OrderRecord{Machine: machine.ID, Canceled: true, Decision: ours}, nil, "-", nil},
		"a volume":                     {&store.OrderRecord{Volume: volume.ID, Decision: ours}, nil, bourse.KindVolume, nil},
		"a volume that was destroyed":  {&store.OrderRecord{Volume: bourse.NewVolumeID(7), Decision: ours}, nil, "-", nil},
		"another app's volume":         {&store.OrderRecord{Volume: volume.ID, Decision: theirs}, nil, "-", nil},
		"a canceled volume":            {&store.OrderRecord{Volume: volume.ID, Canceled: true, Decision: ours}, nil, "-", nil},
		"a task":                       {&store.OrderRecord{Task: task(app.ID)}, nil, bourse.KindTask, nil},
		"another app's task":           {&store.OrderRecord{Task: task("02")}, nil, "-", nil},
		"a hold":                       {&store.OrderRecord{Held: true, Decision: ours}, hold(app.ID, time.Minute), bourse.KindHold, nil},
		"a hold that expired":          {&store.OrderRecord{Held: true, Decision: ours}, hold(app.ID, -time.Minute), "-", nil},
		"a hold that expires now":      {&store.OrderRecord{Held: true, Decision: ours}, hold(app.ID, 0), "-", nil},
		"a hold that was deleted":      {&store.OrderRecord{Held: true, Decision: ours}, nil, "-", nil},
		"another app's hold":           {&store.OrderRecord{Held: true, Decision: theirs}, hold("02", time.Minute), "-", nil},
		"a canceled order":             {&store.OrderRecord{Canceled: true}, nil, "-", nil},
		"a released reservation":       {&store.OrderRecord{ID: key.All(), Canceled: true}, nil, "-", notHolds},
	} {
		s := newStore(t)
		order := bourse.Order{ID: bourse.NewOrderID(), App: app}
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			err := errors.Join(tx.PutMachine(&machine), tx.PutVolume(&volume))
			if c.hold != nil {
				c.hold.Order = order.ID
				err = errors.Join(err, tx.PutHold(c.hold))
			}
			if err != nil || c.rec == nil {
				return err
			}
			rec := *c.rec
			rec.ID, rec.At = cmp.Or(rec.ID, order.ID), now
			if rec.Task != nil {
				return tx.RecordTask(rec)
			}
			return tx.PutOrder(rec)
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for kind, of := range kinds {
			asked := order
			of(&asked)
			err := s.View(func(tx *store.Tx) error {
				fill, refusal, err := History(tx, &asked, now)
				switch open := slices.Contains(c.open, kind); {
				case (fill != nil) != (kind == c.fill), fill != nil && fill.Kind() != kind, fill != nil && refusal != nil:
					t.Errorf("%s, order of kind %q: fill %+v, refusal %+v; want orders of kind %q filled", name, kind, fill, refusal, c.fill)
				case fill == nil && (refusal == nil) != open:
					t.Errorf("%s, order of kind %q: refusal %+v; may be filled: %t", name, kind, refusal, open)
				}
				return err
			})
			if err != nil {
				t.Errorf("%s, order of kind %q: %v", name, kind, err)
			}
		}
	}
}

// A machine keeps its current resources, and needs free capacity only for resources whose amounts increase, even after
// the worker's capacity was lowered.
func TestRoom(t *testing.T) {
	s := newStore(t)
	h := &Host{Worker: "w1", Region: "gru", Ledger: Ledger{Totals: bourse.Amounts{{Resource: "disk", Amount: 10}, {Resource: "memory", Amount: 100}}}}
	now := time.Now().UTC()
	amounts := func(disk, memory int64) bourse.Amounts {
		return bourse.Amounts{{Resource: "disk", Amount: disk}, {Resource: "memory", Amount: memory}}
	}
	m := bourse.Machine{
		ID: bourse.NewMachineID(7), Name: "m", App: "web", AppID: "01", State: bourse.StateCreated, Takes: amounts(20, 40), CreatedAt: now, UpdatedAt: now,
	}
	other := m
	other.ID, other.Name, other.Takes = bourse.NewMachineID(7), "other", amounts(0, 50)
	for name, c := range map[string]struct {
		wants bourse.Amounts
		short bourse.Resource // the resource that the refusal names; "" if everything fits
	}{
		"the same":                {amounts(20, 40), ""},
		"less of both":            {amounts(1, 1), ""},
		"memory that is free":     {amounts(20, 50), ""},
		"memory that is not free": {amounts(20, 51), "memory"},
		"more disk":               {amounts(21, 1), "disk"},
	} {
		if err := s.Update(t.Context(), func(tx *store.Tx) error {
			if err := tx.PutMachine(&m); err != nil {
				return err
			}
			if err := tx.PutMachine(&other); err != nil {
				return err
			}
			r, err := h.CheckRoom(tx, m.Takes, c.wants)
			if (r == nil) != (c.short == "") || r != nil && (r.Resource != string(c.short) || r.Worker != h.Worker) {
				t.Errorf("%s: %+v, want a shortage of %q", name, r, c.short)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// Precheck does not check the current state of the host's ports and pollers. A claim's transaction and a quote do.
func TestPrecheckIgnoresPortsAndPollers(t *testing.T) {
	s := newStore(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	used := l.Addr().(*net.TCPAddr).Port
	var asked int
	h := &Host{
		Worker: "w1", Region: "gru", Drivers: []string{string(bourse.HostImage), string(bourse.PollerImage)},
		Ports: PortRange{First: used, Last: used}, SpaceError: s.SpaceError, Load: func() float64 { return 0 },
		Ledger: Ledger{Totals: bourse.Amounts{{Resource: bourse.ResourceCPU, Amount: 8000}, {Resource: bourse.ResourceMemory, Amount: 4096}}, Shared: 16},
		Pollers: func(*bourse.Config) *bourse.Refusal {
			asked++
			return &bourse.Refusal{Reason: bourse.RefusedResource, Resource: ResourcePollers}
		},
	}
	h.Labels.Store(&Labels{})
	for image, want := range map[string]bourse.RefusalReason{
		bourse.ImageHost: bourse.RefusedUnavailable, bourse.ImagePull: bourse.RefusedResource,
	} {
		order := bourse.Order{
			ID: bourse.NewOrderID(), App: bourse.App{Name: "web", ID: "01"}, Regions: []bourse.Choice{{"gru"}},
			Config: bourse.Config{Image: image, Init: bourse.Init{Exec: []string{"run"}}, Guest: &bourse.Guest{MemoryMB: 64}},
		}
		if err := order.Config.Normalize(); err != nil {
			t.Fatal(err)
		}
		asked = 0
		if err := h.Precheck(s, &order); err != nil || asked != 0 {
			t.Errorf("%s: precheck: %v, pollers were asked %d times; want no error and no such call", image, err, asked)
		}
		if q, err := h.Quote(t.Context(), s, &order); err != nil || q.Refusal == nil || q.Refusal.Reason != want || q.Refusal.Worker != h.Worker {
			t.Errorf("%s: quote: %+v, %v; want a refusal with reason %s", image, q.Refusal, err, want)
		}
		err := s.View(func(tx *store.Tx) error { _, err := h.Take(tx, &order, time.Now()); return err })
		if d, ok := errors.AsType[NotFilledError](err); !ok || d.Refusal == nil || d.Refusal.Reason != want {
			t.Errorf("%s: claim: %v; want a refusal with reason %s", image, err, want)
		}
	}
}

// A destroyed machine's record may still name devices. Those devices are free.
func TestFreeDevices(t *testing.T) {
	s := newStore(t)
	now := time.Now().UTC()
	h := &Host{Worker: "w1", Devices: map[string][]string{"a10": {"gpu=0", "gpu=1", "gpu=2"}}}
	machine := func(state bourse.State, device string) bourse.Machine {
		id := bourse.NewMachineID(7)
		return bourse.Machine{
			ID: id, Name: string(id), App: "web", AppID: "01", State: state, Devices: []string{device}, CreatedAt: now, UpdatedAt: now,
		}
	}
	gone, other, own := machine(bourse.StateCreated, "gpu=0"), machine(bourse.StateCreated, "gpu=1"), machine(bourse.StateCreated, "gpu=2")
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		err := errors.Join(tx.PutMachine(&gone), tx.PutMachine(&other), tx.PutMachine(&own))
		for _, gone.State = range []bourse.State{bourse.StateDestroying, bourse.StateDestroyed} {
			err = errors.Join(err, tx.PutMachine(&gone))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		gpus    int64
		machine bourse.MachineID
		want    []string
	}{
		{0, "", nil},
		{1, "", []string{"gpu=0"}},
		{2, "", nil}, // refused: only gpu=0 is free
		{2, own.ID, []string{"gpu=0", "gpu=2"}},
		{3, own.ID, nil}, // refused: another machine has gpu=1
	} {
		if err := s.View(func(tx *store.Tx) error {
			got, refusal, err := h.FreeDevices(tx, &bourse.Guest{GPUKind: "a10", GPUs: c.gpus}, c.machine)
			if !slices.Equal(got, c.want) || (refusal != nil) != (c.want == nil && c.gpus > 0) {
				t.Errorf("%d for machine %q: %v, refusal %+v; want %v", c.gpus, c.machine, got, refusal, c.want)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}
