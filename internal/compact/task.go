package compact

import (
	"bytes"
	"time"

	"github.com/bourse-dev/bourse"
)

// The fields of an amount.
const (
	amountResource Number = iota + 1
	amountAmount
)

// Amounts appends a field for each amount.
func Amounts(b []byte, n Number, all bourse.Amounts) []byte {
	for _, a := range all {
		var room [64]byte
		b = Part(b, n, Int(Text(room[:0], amountResource, a.Resource), amountAmount, a.Amount))
	}
	return b
}

// Amount reads one of the fields that Amounts appended.
func (f Field) Amount() (a bourse.Amount, err error) {
	for f, err := range Fields(f.Bytes) {
		if err != nil {
			return a, err
		}
		switch f.Number {
		case amountResource:
			a.Resource = bourse.Resource(f.Bytes)
		case amountAmount:
			a.Amount = f.Int
		}
	}
	return a, nil
}

// The fields of a task's result.
const (
	resultOrder Number = iota + 1
	resultName
	resultWorker
	resultRegion
	resultMachine
	resultEnd
	resultExitCode
	resultStatus
	resultType
	resultAnswer
	resultError
	resultStartedAt
	resultTook
)

// TaskResult appends the record of a task's result.
func TaskResult(b []byte, r *bourse.TaskResult) []byte {
	b = Text(b, resultOrder, r.Order)
	b = Text(b, resultName, r.Name)
	b = Text(b, resultWorker, r.Worker)
	b = Text(b, resultRegion, r.Region)
	b = Text(b, resultMachine, r.Machine)
	b = Text(b, resultEnd, r.End)
	b = Int(b, resultExitCode, r.ExitCode)
	b = Int(b, resultStatus, r.Status)
	b = Text(b, resultType, r.Type)
	b = Text(b, resultAnswer, r.Answer)
	b = Text(b, resultError, r.Error)
	b = Time(b, resultStartedAt, r.StartedAt)
	return Int(b, resultTook, r.Took)
}

// ParseTaskResult reads what TaskResult appended, and keeps nothing of it.
func ParseTaskResult(record []byte) (r bourse.TaskResult, err error) {
	for f, err := range Fields(record) {
		if err != nil {
			return r, err
		}
		switch f.Number {
		case resultOrder:
			r.Order = bourse.OrderID(f.Bytes)
		case resultName:
			r.Name = string(f.Bytes)
		case resultWorker:
			r.Worker = bourse.WorkerID(f.Bytes)
		case resultRegion:
			r.Region = bourse.Region(f.Bytes)
		case resultMachine:
			r.Machine = bourse.MachineID(f.Bytes)
		case resultEnd:
			r.End = bourse.TaskEnd(f.Bytes)
		case resultExitCode:
			r.ExitCode = int(f.Int)
		case resultStatus:
			r.Status = int(f.Int)
		case resultType:
			r.Type = string(f.Bytes)
		case resultAnswer:
			r.Answer = bytes.Clone(f.Bytes)
		case resultError:
			r.Error = string(f.Bytes)
		case resultStartedAt:
			r.StartedAt = f.Time()
		case resultTook:
			r.Took = time.Duration(f.Int)
		}
	}
	return r, nil
}
