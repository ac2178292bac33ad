package store

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/compact"
)

// taskVersion begins the record of an order for a place on a warm machine: what
// follows is in the form of package compact. There are many of those, each is
// written twice, and most are never read.
const taskVersion = 2

// The fields of such a record.
const (
	taskOrderID compact.Number = iota + 1
	taskAt
	taskApp
	taskAmount // one for each of Takes
	taskResult
	taskAppID
)

// compact tells whether the record has no more than the fields above.
func (o *OrderRecord) compact() bool {
	return o.Task != nil && o.Task.Cold == nil && o.filler() == "" && !o.Canceled
}

// encodeTask writes a record that is compact.
func encodeTask(o *OrderRecord) []byte {
	var room [512]byte
	b := append(make([]byte, 0, 384+len(o.Task.Result.Answer)), taskVersion)
	b = compact.Text(b, taskOrderID, o.ID)
	b = compact.Time(b, taskAt, o.At)
	b = compact.Text(b, taskApp, o.Task.App)
	b = compact.Text(b, taskAppID, o.Task.AppID)
	b = compact.Amounts(b, taskAmount, o.Task.Takes)
	return compact.Part(b, taskResult, compact.TaskResult(room[:0], &o.Task.Result))
}

// decodeTask reads what encodeTask wrote. It keeps nothing of b.
func decodeTask(b []byte) (o OrderRecord, err error) {
	o.Task = &TaskRecord{}
	for f, err := range compact.Fields(b[1:]) {
		switch {
		case err != nil:
		case f.Number == taskOrderID:
			o.ID = bourse.OrderID(f.Bytes)
		case f.Number == taskAt:
			o.At = f.Time()
		case f.Number == taskApp:
			o.Task.App = bourse.AppName(f.Bytes)
		case f.Number == taskAppID:
			o.Task.AppID = string(f.Bytes)
		case f.Number == taskAmount:
			var a bourse.Amount
			a, err = f.Amount()
			o.Task.Takes = append(o.Task.Takes, a)
		case f.Number == taskResult:
			o.Task.Result, err = compact.ParseTaskResult(f.Bytes)
		}
		if err != nil {
			return OrderRecord{}, bourse.Errorf(bourse.CodeInternal, "damaged record: %w", err)
		}
	}
	return o, nil
}
