package machinesapi

import "github.com/bourse-dev/bourse"

// TaskLine is one line of a streamed reply to a task. Exactly one field is set. The last line
// contains the result or an error.
type TaskLine struct {
	Accepted     bourse.OrderID `json:"accepted,omitempty"` // ID of the order; sent once a worker has recorded the order
	Output       string         `json:"output,omitempty"`   // a part of the answer
	OutputBase64 []byte         `json:"output_base64,omitempty"`
	Result       *TaskReply     `json:"result,omitempty"`
	Error        *ErrorBody     `json:"error,omitempty"`
}
