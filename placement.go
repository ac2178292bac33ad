package bourse

// Placement states that a broker placed an order of an app on a worker. A
// worker cannot make one: the broker that claims the worker's quote signs it,
// the worker keeps the signed form with the machine or volume and shows it
// wherever it shows that record. A record without a valid placement belongs to
// no app.
type Placement struct {
	Order  OrderID  `cbor:"1,keyasint"`
	Kind   Kind     `cbor:"2,keyasint"` // KindMachine, KindTask (its machine) or KindVolume
	App    AppName  `cbor:"3,keyasint"`
	AppID  string   `cbor:"4,keyasint"`
	Worker WorkerID `cbor:"5,keyasint"`
}

// Placement returns the placement of the order on a worker.
func (o *Order) Placement(worker WorkerID) Placement {
	return Placement{Order: o.ID, Kind: o.Kind(), App: o.App.Name, AppID: o.App.ID, Worker: worker}
}

// Places reports whether p is about machine m.
func (p Placement) Places(m *Machine) bool {
	return p.Kind != KindVolume && p.of(m.Order, m.App, m.AppID, m.Worker)
}

// PlacesVolume reports whether p is about volume v.
func (p Placement) PlacesVolume(v *Volume) bool {
	return p.Kind == KindVolume && p.of(v.Order, v.App, v.AppID, v.Worker)
}

func (p Placement) of(order OrderID, app AppName, appID string, worker WorkerID) bool {
	return p == Placement{Order: order, Kind: p.Kind, App: app, AppID: appID, Worker: worker}
}
