package store

import (
	"iter"
	"time"

	"github.com/bourse-dev/bourse"
)

// TaskRecord is a worker's record of a task. While the task is in progress, its resources are
// included in the worker's committed sums. After the task has ended, its result is retained for
// callers that repeat the order.
type TaskRecord struct {
	App    bourse.AppName    `json:"app"`
	AppID  string            `json:"app_id,omitempty"` // ID of the app; see [bourse.App.Owns]
	Takes  bourse.Amounts    `json:"takes,omitempty"`  // resources in addition to the machine's; empty once the task has ended
	Result bourse.TaskResult `json:"result"`           // End is empty while the task is in progress
	Cold   *ColdTask         `json:"cold,omitempty"`   // set for a task with its own machine until it has ended
}

// ColdTask contains the state of a task that has its own machine. It survives restarts of the
// daemon.
type ColdTask struct {
	Payload []byte          `json:"payload,omitempty"`
	Until   time.Time       `json:"until"`             // deadline of the task
	Timeout bourse.Duration `json:"timeout,omitempty"` // time limit that begins when the machine has started; if it is 0, only Until applies
}

// Open reports whether the task is in progress.
func (r *TaskRecord) Open() bool { return r.Result.End == "" }

// MaxTaskBytes is the approximate maximum total size of ended tasks' records, in bytes. If it is
// exceeded, the oldest of these records are deleted. If a caller repeats an order whose record was
// deleted, the order counts as new.
const MaxTaskBytes = 128 << 20

const (
	// maxTaskEvictions is the maximum number of old tasks that are deleted each time a task ends. If that does not free
	// enough space, more tasks are deleted when other tasks end.
	maxTaskEvictions = 64
	// taskEvictBytes is how far below MaxTaskBytes a deletion reduces the total size. Without this margin, each task
	// that ends would cause a deletion.
	taskEvictBytes = MaxTaskBytes / 64
	// taskOverhead is the approximate size of an ended task's record in bytes, not counting its
	// answer, error and type.
	taskOverhead = 512
)

const keyTaskBytes = "task_bytes"

// size returns the approximate size of an ended task's record in the store, in bytes.
func (r *TaskRecord) size() int64 {
	return int64(len(r.Result.Answer) + len(r.Result.Error) + len(r.Result.Type) + taskOverhead)
}

// RecordTask inserts the record of a task in progress and adds its resources to the committed sums.
// It returns CodeAlreadyExists if the order already has a record.
func (t *Tx) RecordTask(o OrderRecord) error {
	k, err := key(string(o.ID))
	if err != nil {
		return err
	}
	if o.Task == nil || !o.Task.Open() {
		return bourse.Errorf(bourse.CodeInternal, "order %s has no open task", o.ID)
	}
	if err := o.Task.Takes.Validate(); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "record of order %s: %w", o.ID, err)
	}
	if t.kv.Get(bucketOrders, k) != nil {
		return bourse.Errorf(bourse.CodeAlreadyExists, "order %s already has a record", o.ID)
	}
	return orders.swap(t, k, nil, &o)
}

// RecordTaskStart records that a task's own machine started at the given time. The task's timeout counts from this
// time, so its deadline may become earlier. RecordTaskStart does nothing unless the order's task is in progress, has
// its own machine, and has a timeout.
func (t *Tx) RecordTaskStart(id bourse.OrderID, at time.Time) error {
	o, ok, err := t.Order(id)
	if err != nil || !ok || o.Task == nil || o.Task.Cold == nil || o.Task.Cold.Timeout == 0 {
		return err
	}
	until := at.Add(time.Duration(o.Task.Cold.Timeout))
	if !until.Before(o.Task.Cold.Until) {
		return nil
	}
	o.Task.Cold.Until = until
	return orders.put(t, []byte(id), &o)
}

// RecordTaskEnd records a task's result, and subtracts the task's resources from the committed
// sums. If the task is not in progress, RecordTaskEnd ignores the result and returns false.
func (t *Tx) RecordTaskEnd(id bourse.OrderID, result bourse.TaskResult, at time.Time) (bool, error) {
	if t.kv.Get(bucketTaskOpen, []byte(id)) == nil {
		return false, nil
	}
	old, ok, err := t.Order(id)
	if err != nil || !ok || old.Task == nil {
		return false, err
	}
	if result.End == "" {
		return false, bourse.Errorf(bourse.CodeInternal, "the result of task %s does not state how the task ended", id)
	}
	now, task := old, *old.Task
	task.Takes, task.Cold, task.Result = nil, nil, result
	now.At, now.Task = at, &task
	if err := orders.swap(t, []byte(id), &old, &now); err != nil {
		return false, err
	}
	return true, t.evictTasks()
}

// DeleteTask deletes an order's record after an attempt to start the order's task has failed, so
// that a worker may fill the order later. It does nothing if the order has no task in progress.
func (t *Tx) DeleteTask(id bourse.OrderID) error {
	o, ok, err := t.Order(id)
	if err != nil || !ok || o.Task == nil || !o.Task.Open() {
		return err
	}
	return orders.swap(t, []byte(id), &o, nil)
}

// OpenTasks returns the records of all orders whose tasks are in progress.
func (t *Tx) OpenTasks() iter.Seq2[OrderRecord, error] {
	return func(yield func(OrderRecord, error) bool) {
		for k := range t.kv.Range(bucketTaskOpen, nil) {
			o, ok, err := t.Order(bourse.OrderID(k))
			if err == nil && (!ok || o.Task == nil) {
				err = bourse.Errorf(bourse.CodeInternal, "task %s is in progress, but its order has no task record", k)
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// WarmFor returns the IDs of an app's live machines that are warm for the named task.
func (t *Tx) WarmFor(app bourse.App, task string) []bourse.MachineID {
	var out []bourse.MachineID
	for _, space := range appKeysOf(&app) {
		for id := range t.keysBelow(bucketMachineTask, append(append(append([]byte(space), 0), task...), 0)) {
			if id := bourse.MachineID(id); space == app.ID || t.owned(id, &app) {
				out = append(out, id)
			}
		}
	}
	return out
}

// owned reports whether a machine belongs to an app. It also recognizes a machine whose record
// contains no app ID.
func (t *Tx) owned(id bourse.MachineID, app *bourse.App) bool {
	m, err := t.Machine(id)
	return err == nil && m.OwnedBy(app)
}

// evictTasks deletes the oldest ended tasks' records if all of these records together exceed MaxTaskBytes. It frees
// more space than necessary, so that it need not delete a task each time another one ends.
func (t *Tx) evictTasks() error {
	if t.taskBytes() <= MaxTaskBytes {
		return nil
	}
	_, err := t.deleteTasks(maxTaskEvictions, func(_ time.Time, kept int64) bool { return kept > MaxTaskBytes-taskEvictBytes })
	return err
}

// deleteTasks deletes at most limit ended tasks, oldest first, and returns how many it deleted. It stops at the
// first task for which due returns false. The arguments of due are the time when the task ended, and the total size
// of this task and all newer ended tasks.
func (t *Tx) deleteTasks(limit int, due func(ended time.Time, kept int64) bool) (int, error) {
	var old []string
	kept := t.taskBytes()
	for k, size := range t.kv.Range(bucketTaskTime, nil) {
		at, id := splitTimeKey(k)
		if len(old) == limit || !due(at, kept) {
			break
		}
		old = append(old, id)
		kept -= int64(uint64Of(size))
	}
	for _, id := range old {
		if err := orders.delete(t, []byte(id)); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}

func (t *Tx) taskBytes() int64 { return int64(uint64Of(t.kv.Get(bucketMeta, []byte(keyTaskBytes)))) }
