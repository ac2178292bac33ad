package machinesapi

import "github.com/bourse-dev/bourse"

// TaskLine is one line of a task's reply that streams: one of its fields is
// set. The last line has the result, or an error.
type TaskLine struct {
	Accepted     bourse.OrderID `json:"accepted,omitempty"` // the worker has recorded the order
	Output       string         `json:"output,omitempty"`   // a part of the answer, as it comes
	OutputBase64 []byte         `json:"output_base64,omitempty"`
	Result       *TaskReply     `json:"result,omitempty"`
	Error        *ErrorBody     `json:"error,omitempty"`
}
