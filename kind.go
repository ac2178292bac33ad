package bourse

// Kind says what an order is for, and what filled it.
type Kind string

// The kinds of orders.
const (
	KindMachine Kind = "machine" // what Config says
	KindVolume  Kind = "volume"  // what Volume says
	KindTask    Kind = "task"    // work: of a machine that is warm, or of one that lives for it (see [Order.Warm])
	KindHold    Kind = "hold"    // capacity for what Config says
)

// kindOf returns the kind of what has these parts, "" for more than one of them.
func kindOf(volume, task, hold bool) Kind {
	switch {
	case volume && !task && !hold:
		return KindVolume
	case task && !volume && !hold:
		return KindTask
	case hold && !volume && !task:
		return KindHold
	case !volume && !task && !hold:
		return KindMachine
	}
	return ""
}

// Kind returns what the order is for, "" for one that no worker could fill
// because it is for several things.
func (o *Order) Kind() Kind { return kindOf(o.Volume != nil, o.Task != nil, o.Hold != nil) }

// Kind returns what the fill is of, "" for one that is of several things.
func (f *Fill) Kind() Kind { return kindOf(f.Volume != nil, f.Task != nil, f.Hold != nil) }
