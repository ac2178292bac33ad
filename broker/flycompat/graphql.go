package flycompat

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/bourse-dev/bourse"
)

// Bounds of one query. flyctl's longest has 300 tokens and is 8 fields deep.
const (
	maxQuery  = 256 << 10 // bytes, with its variables
	maxTokens = 4000
	maxDepth  = 20      // of selections in selections
	maxWork   = 500_000 // selections looked at, and values in the reply
	maxAsked  = 50      // fields that /v1 is asked for
)

// query is the body of a request.
type query struct {
	Query         string         `json:"query"`
	Variables     map[string]any `json:"variables"`
	OperationName string         `json:"operationName"`
}

// reply is the body of a reply, also of one that failed: its status is 200.
type reply struct {
	Data   any          `json:"data"`
	Errors []replyError `json:"errors,omitempty"`
}

type replyError struct {
	Message    string            `json:"message"`
	Path       []any             `json:"path,omitempty"`
	Extensions map[string]string `json:"extensions,omitempty"`
}

// serveGraphQL answers a query. What is no query at all is refused with 400; what a
// query asks for and cannot have is an error in the reply.
func serveGraphQL(c *caller, w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxQuery)
	if err != nil {
		return err
	}
	op, vars, doc, err := parse(raw)
	if err != nil {
		return err
	}
	x := execution{doc: doc, vars: vars, work: maxWork, asked: maxAsked}
	root := queries(c)
	if op.Operation == ast.Mutation {
		root = mutations()
	}
	data, ok := x.object(r.Context(), op.SelectionSet, root, nil)
	out := reply{Data: data, Errors: x.errors}
	if !ok {
		out.Data = nil
	}
	return writeJSON(w, http.StatusOK, out)
}

// parse reads a query and finds the operation that is to be executed, and its
// variables with their defaults. Codes: invalid.
func parse(raw []byte) (*ast.OperationDefinition, map[string]any, *ast.QueryDocument, error) {
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "send one query at a time: batches are not answered")
	}
	var q query
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "the body is no GraphQL request: %w", err)
	}
	if strings.TrimSpace(q.Query) == "" {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, `the request has no query: send {"query": …}`)
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: q.Query}, maxTokens)
	if err != nil {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "the query cannot be read: %s", bourse.Quoted(err.Error()))
	}
	op := doc.Operations.ForName(q.OperationName)
	if op == nil {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "the query has no operation %s", bourse.Quoted(q.OperationName))
	}
	if op.Operation == ast.Subscription {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "subscriptions are not offered: use a query")
	}
	vars := q.Variables
	if vars == nil {
		vars = map[string]any{}
	}
	for _, v := range op.VariableDefinitions {
		if _, given := vars[v.Variable]; given || v.DefaultValue == nil {
			continue
		}
		if vars[v.Variable], err = v.DefaultValue.Value(nil); err != nil {
			return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "variable %s has no value: %w", bourse.Quoted(v.Variable), err)
		}
	}
	return op, vars, doc, nil
}
