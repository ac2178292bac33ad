package fabric

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/compact"
)

// TaskClaim is the claim of an order for a place on a warm machine, and its
// Order has what there is to know of such an order. There are many of those and
// each is short work, so the claim and its reply are no JSON: see package
// compact.
type TaskClaim struct{ Order *bourse.Order }

// short tells whether a claim of the order has the form of a TaskClaim.
func short(o *bourse.Order) bool {
	return o.Warm() && o.Task.Output == nil && o.Volume == nil && o.Hold == nil && o.Reservation == "" && o.Name == ""
}

// The fields of a TaskClaim.
const (
	claimOrder compact.Number = iota + 1
	claimApp
	claimRegions // one for each choice
	claimRequirement
	claimTask
	claimPayload
	claimType
	claimTimeout
	claimWithin
	claimNamed
	claimAppID
	claimAppBorn
	claimAppLife
)

// The field of a choice, and those of a requirement.
const (
	choiceRegion compact.Number = 1

	requirementName  compact.Number = 1
	requirementLabel compact.Number = 2
	requirementCount compact.Number = 3
)

// AppendBinary implements encoding.BinaryAppender.
func (c TaskClaim) AppendBinary(b []byte) ([]byte, error) {
	o := c.Order
	b = compact.Text(b, claimOrder, o.ID)
	b = compact.Text(b, claimApp, o.App.Name)
	b = compact.Text(b, claimAppID, o.App.ID)
	if o.App.Life > 0 { // only then does it matter when
		b = compact.Int(compact.Time(b, claimAppBorn, o.App.CreatedAt), claimAppLife, o.App.Life)
	}
	for _, choice := range o.Regions {
		var room [64]byte
		part := room[:0]
		for _, r := range choice {
			part = compact.Text(part, choiceRegion, r)
		}
		b = compact.Part(b, claimRegions, part)
	}
	for name, r := range o.Config.Requirements {
		var room [64]byte
		part := compact.Text(room[:0], requirementName, name)
		part = compact.Int(compact.Text(part, requirementLabel, r.Label), requirementCount, r.Count)
		b = compact.Part(b, claimRequirement, part)
	}
	b = compact.Text(b, claimTask, o.Task.Name)
	b = compact.Text(b, claimPayload, o.Task.Payload)
	b = compact.Text(b, claimType, o.Task.Type)
	b = compact.Int(b, claimTimeout, o.Task.Timeout)
	b = compact.Int(b, claimWithin, o.Within)
	return compact.Bool(b, claimNamed, o.Named), nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler.
func (c *TaskClaim) UnmarshalBinary(b []byte) error {
	task := &bourse.TaskOrder{}
	o := &bourse.Order{Task: task}
	for f, err := range compact.Fields(b) {
		if err != nil {
			return err
		}
		switch f.Number {
		case claimOrder:
			o.ID = bourse.OrderID(f.Bytes)
		case claimApp:
			o.App.Name = bourse.AppName(f.Bytes)
		case claimAppID:
			o.App.ID = string(f.Bytes)
		case claimAppBorn:
			o.App.CreatedAt = f.Time()
		case claimAppLife:
			o.App.Life = int(f.Int)
		case claimRegions:
			err = readChoice(f.Bytes, o)
		case claimRequirement:
			err = readRequirement(f.Bytes, o)
		case claimTask:
			task.Name = string(f.Bytes)
		case claimPayload:
			task.Payload = bytes.Clone(f.Bytes)
		case claimType:
			task.Type = string(f.Bytes)
		case claimTimeout:
			task.Timeout = bourse.Duration(f.Int)
		case claimWithin:
			o.Within = bourse.Duration(f.Int)
		case claimNamed:
			o.Named = true
		}
		if err != nil {
			return err
		}
	}
	if !o.Warm() {
		return bourse.Errorf(bourse.CodeInvalid, "the claim names no task")
	}
	c.Order = o
	return nil
}

func readChoice(b []byte, o *bourse.Order) error {
	var choice bourse.Choice
	for f, err := range compact.Fields(b) {
		if err != nil {
			return err
		}
		if f.Number == choiceRegion {
			choice = append(choice, bourse.Region(f.Bytes))
		}
	}
	o.Regions = append(o.Regions, choice)
	return nil
}

func readRequirement(b []byte, o *bourse.Order) error {
	var name string
	var r bourse.Requirement
	for f, err := range compact.Fields(b) {
		if err != nil {
			return err
		}
		switch f.Number {
		case requirementName:
			name = string(f.Bytes)
		case requirementLabel:
			r.Label = string(f.Bytes)
		case requirementCount:
			r.Count = f.Int
		}
	}
	if r.Count < 0 || r.Count > bourse.MaxAmount || r.Count != 0 && r.Label != "" || !utf8.ValidString(r.Label) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid requirement %s: use a text or a whole number from 1 to %d", bourse.Quoted(name), int64(bourse.MaxAmount))
	}
	if o.Config.Requirements == nil {
		o.Config.Requirements = bourse.Requirements{}
	}
	o.Config.Requirements[name] = r
	return nil
}

// TaskReply is the reply to a TaskClaim. Its fill has a task only.
type TaskReply ClaimReply

// The fields of a TaskReply.
const (
	replyTask compact.Number = iota + 1
	replyClaimed
	replyStarted
	replyAgain
	replyRefusal // as JSON: it is rare
)

// AppendBinary implements encoding.BinaryAppender.
func (r TaskReply) AppendBinary(b []byte) ([]byte, error) {
	if f := r.Fill; f != nil && f.Task != nil {
		b = compact.Part(b, replyTask, compact.TaskResult(nil, f.Task))
		b = compact.Int(b, replyClaimed, f.Claimed)
		b = compact.Int(b, replyStarted, f.Started)
		b = compact.Bool(b, replyAgain, f.Again)
	}
	if r.Refusal == nil {
		return b, nil
	}
	text, err := json.Marshal(r.Refusal)
	return compact.Part(b, replyRefusal, text), err
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler.
func (r *TaskReply) UnmarshalBinary(b []byte) error {
	var fill bourse.Fill
	for f, err := range compact.Fields(b) {
		if err != nil {
			return err
		}
		switch f.Number {
		case replyTask:
			var task bourse.TaskResult
			task, err = compact.ParseTaskResult(f.Bytes)
			fill.Task = &task
		case replyClaimed:
			fill.Claimed = time.Duration(f.Int)
		case replyStarted:
			fill.Started = time.Duration(f.Int)
		case replyAgain:
			fill.Again = true
		case replyRefusal:
			err = json.Unmarshal(f.Bytes, &r.Refusal)
		}
		if err != nil {
			return err
		}
	}
	if fill.Task != nil {
		r.Fill = &fill
	}
	return nil
}
