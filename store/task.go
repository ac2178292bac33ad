package store

import (
	"bytes"
	"iter"
	"time"

	"github.com/bourse-dev/bourse"
)

// TaskRecord is what a worker knows of an order for work. While the task is
// under way what it takes is part of the committed sums; once it has ended the
// result is kept for whoever asks again.
type TaskRecord struct {
	App    bourse.AppName    `json:"app"`
	AppID  string            `json:"app_id,omitempty"` // see [bourse.App.Owns]
	Takes  bourse.Amounts    `json:"takes,omitempty"`  // beside what its machine takes; nothing once it has ended
	Result bourse.TaskResult `json:"result"`           // without an end while it is under way
	Cold   *ColdTask         `json:"cold,omitempty"`   // of a machine of its own, until it has ended
}

// ColdTask is what a task's own machine needs to be told, also by the next
// daemon.
type ColdTask struct {
	Payload []byte          `json:"payload,omitempty"`
	Until   time.Time       `json:"until"`             // its time is over then
	Timeout bourse.Duration `json:"timeout,omitempty"` // from its machine's start on; 0: Until says all
}

// Open tells whether the task is under way.
func (r *TaskRecord) Open() bool { return r.Result.End == "" }

// TaskBytes bounds what is kept of ended tasks. Past it the oldest are
// forgotten, and a repetition of them would be a new order.
const TaskBytes = 128 << 20

const (
	// taskDrops bounds how many old tasks one new one displaces: a large answer
	// after many small ones is paid for by those that follow.
	taskDrops = 64
	// taskRoom is how much room is made at once, in bytes.
	taskRoom = TaskBytes / 64
	// taskOverhead is about what the indexes of an ended task take.
	taskOverhead = 128
)

var keyTaskBytes = []byte("task_bytes")

// TaskBegun inserts the record of a task that is under way, and adds what it
// takes to the committed sums. CodeAlreadyExists: the order has a record.
func (t *Tx) TaskBegun(o OrderRecord) error {
	k, err := key(string(o.ID))
	if err != nil {
		return err
	}
	if o.Task == nil || !o.Task.Open() {
		return bourse.Errorf(bourse.CodeInternal, "order %s is for no task that begins", o.ID)
	}
	if err := o.Task.Takes.Validate(); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "record of order %s: %w", o.ID, err)
	}
	if t.get(bucketOrders, k) != nil {
		return bourse.Errorf(bourse.CodeAlreadyExists, "order %s has a record", o.ID)
	}
	if err := t.put(bucketTaskOpen, k, []byte{}); err != nil {
		return err
	}
	if err := t.resum(nil, o.Task.Takes); err != nil {
		return err
	}
	return t.putRecord(bucketOrders, k, o)
}

// TaskStarted notes that a task's own machine has started: from then on its
// timeout counts. Of any other order there is nothing to note.
func (t *Tx) TaskStarted(id bourse.OrderID, at time.Time) error {
	o, ok, err := t.Order(id)
	if err != nil || !ok || o.Task == nil || o.Task.Cold == nil || o.Task.Cold.Timeout == 0 {
		return err
	}
	until := at.Add(time.Duration(o.Task.Cold.Timeout))
	if !until.Before(o.Task.Cold.Until) {
		return nil
	}
	o.Task.Cold.Until = until
	return t.putRecord(bucketOrders, []byte(id), o)
}

// TaskEnded records how a task has ended and takes what it took off the
// committed sums. It tells whether the task was under way until now: the first
// end is the one that counts.
func (t *Tx) TaskEnded(id bourse.OrderID, result bourse.TaskResult, at time.Time) (bool, error) {
	if t.get(bucketTaskOpen, []byte(id)) == nil {
		return false, nil
	}
	o, ok, err := t.Order(id)
	if err != nil || !ok || o.Task == nil {
		return false, err
	}
	return t.endTask(o, result, at)
}

// WarmTaskEnded is TaskEnded for who has the record that was given to
// TaskBegun, which nothing changes as long as the task is under way.
func (t *Tx) WarmTaskEnded(begun OrderRecord, result bourse.TaskResult, at time.Time) (bool, error) {
	if t.get(bucketTaskOpen, []byte(begun.ID)) == nil {
		return false, nil
	}
	task := *begun.Task
	begun.Task = &task
	return t.endTask(begun, result, at)
}

// endTask ends a task that is under way.
func (t *Tx) endTask(o OrderRecord, result bourse.TaskResult, at time.Time) (bool, error) {
	id := o.ID
	if result.End == "" {
		return false, bourse.Errorf(bourse.CodeInternal, "task %s has no end", id)
	}
	if err := t.resum(o.Task.Takes, nil); err != nil {
		return false, err
	}
	o.At, o.Task.Takes, o.Task.Cold, o.Task.Result = at, nil, nil, result
	b, err := encode(o)
	if err != nil {
		return false, err
	}
	if err := t.delete(bucketTaskOpen, []byte(id)); err != nil {
		return false, err
	}
	size := int64(len(b)) + taskOverhead
	if err := t.put(bucketTaskTime, timeKey(at, string(id)), uint64Bytes(uint64(size))); err != nil {
		return false, err
	}
	if err := t.put(bucketOrders, []byte(id), b); err != nil {
		return false, err
	}
	if err := t.setTaskBytes(t.taskBytes() + size); err != nil {
		return false, err
	}
	return true, t.shedTasks()
}

// TaskUndone removes the record of a task of which nothing was begun: the
// order may be filled elsewhere, or here again.
func (t *Tx) TaskUndone(id bourse.OrderID) error {
	o, ok, err := t.Order(id)
	if err != nil || !ok || o.Task == nil || !o.Task.Open() {
		return err
	}
	if err := t.resum(o.Task.Takes, nil); err != nil {
		return err
	}
	if err := t.delete(bucketTaskOpen, []byte(id)); err != nil {
		return err
	}
	return t.delete(bucketOrders, []byte(id))
}

// OpenTasks gives the orders of all tasks that are under way.
func (t *Tx) OpenTasks() iter.Seq2[OrderRecord, error] {
	return func(yield func(OrderRecord, error) bool) {
		for k := range t.from(bucketTaskOpen, nil) {
			o, ok, err := t.Order(bourse.OrderID(k))
			if err == nil && (!ok || o.Task == nil) {
				err = bourse.Errorf(bourse.CodeInternal, "task %s is under way without a record", k)
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// WarmFor gives the living machines of an app that are configured for a task.
func (t *Tx) WarmFor(app bourse.App, task string) []bourse.MachineID {
	var out []bourse.MachineID
	for _, space := range spaces(&app) {
		for id := range t.under(bucketMachineTask, append(append(append([]byte(space), 0), task...), 0)) {
			if id := bourse.MachineID(id); space == app.ID || t.owned(id, &app) {
				out = append(out, id)
			}
		}
	}
	return out
}

// owned reports whether a machine whose record has no app's id is an app's.
func (t *Tx) owned(id bourse.MachineID, app *bourse.App) bool {
	m, err := t.Machine(id)
	return err == nil && m.OwnedBy(app)
}

// pruneTasks forgets at most most tasks that ended before a time, oldest first.
func (t *Tx) pruneTasks(before time.Time, most int) (int, error) {
	return t.dropTasks(most, func(ended time.Time, _ int64) bool { return ended.Before(before) })
}

// shedTasks makes room when ended tasks take too much: somewhat more than there
// has to be, for the way to the oldest leads over all that were dropped since
// the last checkpoint.
func (t *Tx) shedTasks() error {
	if t.taskBytes() <= TaskBytes {
		return nil
	}
	_, err := t.dropTasks(taskDrops, func(_ time.Time, kept int64) bool { return kept > TaskBytes-taskRoom })
	return err
}

// dropTasks forgets ended tasks, oldest first, as long as the next one is due:
// by when it ended, and by what it and all later ones take.
func (t *Tx) dropTasks(most int, due func(ended time.Time, kept int64) bool) (int, error) {
	var old [][]byte
	kept := t.taskBytes()
	for k, size := range t.from(bucketTaskTime, nil) {
		if at, _ := splitTimeKey(k); len(old) == most || !due(at, kept) {
			break
		}
		old = append(old, bytes.Clone(k))
		kept -= int64(uint64Of(size))
	}
	for _, k := range old {
		_, id := splitTimeKey(k)
		if err := t.delete(bucketTaskTime, k); err != nil {
			return 0, err
		}
		if err := t.delete(bucketOrders, []byte(id)); err != nil {
			return 0, err
		}
	}
	if len(old) == 0 {
		return 0, nil
	}
	return len(old), t.setTaskBytes(kept)
}

func (t *Tx) taskBytes() int64 { return int64(uint64Of(t.get(bucketMeta, keyTaskBytes))) }

func (t *Tx) setTaskBytes(n int64) error {
	return t.put(bucketMeta, keyTaskBytes, uint64Bytes(uint64(max(0, n))))
}

// expectTask is the part of Verify about one task; it gives what the task is
// accounted for.
func (t *Tx) expectTask(o *OrderRecord, set func(string, []byte, []byte), add func(string, string, int64)) (size int64) {
	if o.Task.Open() {
		set(bucketTaskOpen, []byte(o.ID), []byte{})
		addTakes(add, o.Task.Takes)
		return 0
	}
	size = int64(len(t.get(bucketOrders, []byte(o.ID)))) + taskOverhead
	set(bucketTaskTime, timeKey(o.At, string(o.ID)), uint64Bytes(uint64(size)))
	return size
}
