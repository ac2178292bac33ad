package run

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/release"
)

// API is what a run asks for, of one app. Errors have the codes of
// [machinesapi.Client]: unavailable means that nothing happened, timeout that the outcome
// is unknown. Calls are made from several goroutines.
type API interface {
	Machines
	Verbs
	Leases
	Volumes
	Reservations
	View
	// SetRelease says how a deploy goes, and why.
	SetRelease(ctx context.Context, id release.ID, status release.Status, note Note) error
}

// Machines are the machines of the app.
type Machines interface {
	Machine(ctx context.Context, id bourse.MachineID) (machinesapi.Machine, error)
	Create(ctx context.Context, in machinesapi.CreateMachine, order bourse.OrderID) (machinesapi.Machine, error)
	Update(ctx context.Context, id bourse.MachineID, in machinesapi.UpdateMachine, nonce string) (machinesapi.Machine, error)
	// Destroy destroys a machine, also one that runs.
	Destroy(ctx context.Context, id bourse.MachineID, nonce string) error
	SetMetadata(ctx context.Context, id bourse.MachineID, in machinesapi.MetadataPatch) error
	Logs(ctx context.Context, id bourse.MachineID, want machinesapi.LogQuery, line func(machinesapi.LogLine) error) error
}

// Verbs act on a machine that is there.
type Verbs interface {
	Start(ctx context.Context, id bourse.MachineID, nonce string) error
	Stop(ctx context.Context, id bourse.MachineID, nonce string) error
	Restart(ctx context.Context, id bourse.MachineID, nonce string) error
	Cordon(ctx context.Context, id bourse.MachineID, cordoned bool, nonce string) error
	Wait(ctx context.Context, id bourse.MachineID, want machinesapi.WaitMachine) (machinesapi.WaitReply, error)
}

// Leases are those of machines.
type Leases interface {
	Acquire(ctx context.Context, id bourse.MachineID, in machinesapi.LeaseRequest, nonce string) (machinesapi.Lease, error)
	Release(ctx context.Context, id bourse.MachineID, nonce string) error
}

// Volumes are the volumes of the app.
type Volumes interface {
	MakeVolume(ctx context.Context, in machinesapi.CreateVolume, order bourse.OrderID) (machinesapi.Volume, error)
	Volume(ctx context.Context, id bourse.VolumeID) (machinesapi.Volume, error)
	DestroyVolume(ctx context.Context, id bourse.VolumeID) error
}

// Reservations are capacity that is held.
type Reservations interface {
	Reserve(ctx context.Context, in machinesapi.CreateReservation) (machinesapi.Reservation, error)
	Extend(ctx context.Context, id bourse.ReservationID, in machinesapi.ExtendReservation) (machinesapi.Reservation, error)
	EndReservation(ctx context.Context, id bourse.ReservationID) error
}

// View is what the cluster's servers know of the app.
type View interface {
	// Health says how far each server's copy is.
	Health(ctx context.Context) (machinesapi.ViewHealth, error)
	// Rows calls news with each machine of the app as the API's own copy has it, then with
	// a zero Row, and again whenever something of a machine changes, until ctx ends or the
	// news break off. It returns an error in any case.
	Rows(ctx context.Context, news func(Row)) error
}

// Row is a machine in a copy of the view.
type Row struct {
	Machine  bourse.MachineID
	Worker   bourse.WorkerID
	Gone     bool // it is in the copy no more
	State    bourse.State
	Instance bourse.InstanceID
	Cordoned bool
	Starts   int
}
