package run

import (
	"context"
	"encoding/json"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// NewAPI returns an API that sends requests about one app with the given client.
func NewAPI(client *machinesapi.Client, app bourse.AppName) API {
	return appAPI{client, app}
}

type appAPI struct {
	client *machinesapi.Client
	app    bourse.AppName
}

var _ API = appAPI{}

func (o appAPI) Machine(ctx context.Context, id bourse.MachineID) (machinesapi.Machine, error) {
	return o.client.Machine(ctx, o.app, id)
}

func (o appAPI) Create(ctx context.Context, in machinesapi.CreateMachine, order bourse.OrderID) (machinesapi.Machine, error) {
	made, err := o.client.Create(ctx, o.app, in, order)
	return made.Machine, err
}

func (o appAPI) Update(ctx context.Context, id bourse.MachineID, in machinesapi.UpdateMachine, nonce string) (machinesapi.Machine, error) {
	return o.client.Update(ctx, o.app, id, in, nonce)
}

func (o appAPI) Destroy(ctx context.Context, id bourse.MachineID, nonce string) error {
	return o.client.Destroy(ctx, o.app, id, machinesapi.DestroyMachine{Force: true}, nonce)
}

func (o appAPI) SetMetadata(ctx context.Context, id bourse.MachineID, in machinesapi.MetadataPatch) error {
	return o.client.Metadata(o.app, id).Patch(ctx, in)
}

func (o appAPI) Logs(ctx context.Context, id bourse.MachineID, want machinesapi.LogQuery, line func(machinesapi.LogLine) error) error {
	return o.client.Logs(ctx, o.app, id, want, line)
}

func (o appAPI) Start(ctx context.Context, id bourse.MachineID, nonce string) error {
	_, err := o.client.Start(ctx, o.app, id, nonce)
	return err
}

func (o appAPI) Stop(ctx context.Context, id bourse.MachineID, nonce string) error {
	return o.client.Stop(ctx, o.app, id, machinesapi.StopMachine{}, nonce)
}

func (o appAPI) Restart(ctx context.Context, id bourse.MachineID, nonce string) error {
	return o.client.Restart(ctx, o.app, id, machinesapi.RestartMachine{}, nonce)
}

func (o appAPI) Cordon(ctx context.Context, id bourse.MachineID, cordoned bool, nonce string) error {
	return o.client.Cordon(ctx, o.app, id, cordoned, nonce)
}

func (o appAPI) Wait(ctx context.Context, id bourse.MachineID, want machinesapi.WaitMachine) (machinesapi.WaitReply, error) {
	return o.client.Wait(ctx, o.app, id, want)
}

func (o appAPI) Acquire(ctx context.Context, id bourse.MachineID, in machinesapi.LeaseRequest, nonce string) (machinesapi.Lease, error) {
	return o.client.Lease(o.app, id).Acquire(ctx, in, nonce)
}

func (o appAPI) Release(ctx context.Context, id bourse.MachineID, nonce string) error {
	return o.client.Lease(o.app, id).Release(ctx, nonce)
}

func (o appAPI) MakeVolume(ctx context.Context, in machinesapi.CreateVolume, order bourse.OrderID) (machinesapi.Volume, error) {
	return o.client.Volumes(o.app).Create(ctx, in, order)
}

func (o appAPI) Volume(ctx context.Context, id bourse.VolumeID) (machinesapi.Volume, error) {
	return o.client.Volumes(o.app).Get(ctx, id)
}

func (o appAPI) DestroyVolume(ctx context.Context, id bourse.VolumeID) error {
	_, err := o.client.Volumes(o.app).Destroy(ctx, id)
	return err
}

func (o appAPI) Reserve(ctx context.Context, in machinesapi.CreateReservation) (machinesapi.Reservation, error) {
	return o.client.Reservations().Create(ctx, in)
}

func (o appAPI) Extend(ctx context.Context, id bourse.ReservationID, in machinesapi.ExtendReservation) (machinesapi.Reservation, error) {
	return o.client.Reservations().Extend(ctx, id, in)
}

func (o appAPI) EndReservation(ctx context.Context, id bourse.ReservationID) error {
	return o.client.Reservations().Release(ctx, id)
}

func (o appAPI) Health(ctx context.Context) (machinesapi.ViewHealth, error) {
	return o.client.ViewHealth(ctx)
}

// SetRelease preserves the other members of the release's metadata. It reads the metadata first, because the request
// replaces all of it.
func (o appAPI) SetRelease(ctx context.Context, id release.ID, status release.Status, note Note) error {
	releases := o.client.Releases(o.app)
	list, err := releases.List(ctx, 0)
	if err != nil {
		return err
	}
	var metadata json.RawMessage
	for i := range list {
		if list[i].ID == id {
			metadata = list[i].Metadata
		}
	}
	text, err := withNote(metadata, note)
	if err != nil {
		return err
	}
	_, err = releases.Change(ctx, id, machinesapi.ChangeRelease{Status: status, Metadata: text})
	return err
}

// rowsStatement is the query that Rows subscribes to. rowOf relies on the order of the first six columns. The other
// columns are selected only so that a change to a lease or a check counts as a change to the row.
const rowsStatement = `SELECT id, worker, state, instance_id, cordoned, starts, lease_owner,
  (SELECT json_group_array(name || ' ' || status) FROM checks WHERE machine = id) AS checks FROM machines WHERE app = ?`

func (o appAPI) Rows(ctx context.Context, news func(Row)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := o.client.Subscribe(ctx, machinesapi.ViewQuery{Statement: rowsStatement, Params: []any{string(o.app)}})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for line, err := range s.Lines() {
		if err != nil {
			return err
		}
		switch {
		case line.Row != nil:
			news(rowOf(line.Row.Cells))
		case line.End != nil:
			news(Row{})
		case line.Change != nil && len(line.Change.Row.Cells) > 0:
			row := rowOf(line.Change.Row.Cells)
			row.Gone = line.Change.Kind == machinesapi.RowDeleted
			news(row)
		}
	}
	return bourse.Errorf(bourse.CodeUnavailable, "the stream of changes to the view has ended")
}

// rowOf converts the cells of a row. Fields whose cells are missing or have the wrong type
// are zero.
func rowOf(cells []any) Row {
	text := func(i int) string {
		if i < len(cells) {
			if s, ok := cells[i].(string); ok {
				return s
			}
		}
		return ""
	}
	number := func(i int) int {
		if i < len(cells) {
			if n, ok := cells[i].(json.Number); ok {
				v, _ := n.Int64() // 0 if the number is not an integer
				return int(v)
			}
		}
		return 0
	}
	return Row{
		Machine: bourse.MachineID(text(0)), Worker: bourse.WorkerID(text(1)), State: bourse.State(text(2)),
		Instance: bourse.InstanceID(text(3)), Cordoned: number(4) != 0, Starts: number(5),
	}
}
