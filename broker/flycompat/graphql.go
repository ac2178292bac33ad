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

// Limits for one query. flyctl's longest query has 300 tokens and is 8 fields deep.
const (
	maxQuery  = 256 << 10 // size of the query and its variables, in bytes
	maxTokens = 4000
	maxDepth  = 20      // nesting depth of selections
	maxWork   = 500_000 // number of visited selections and of values in the reply
	maxCalls  = 50      // number of fields that call /v1
)

// query is the body of a request.
type query struct {
	Query         string         `json:"query"`
	Variables     map[string]any `json:"variables"`
	OperationName string         `json:"operationName"`
}

// reply is the body of a reply. The HTTP status is 200 even if the query failed.
type reply struct {
	Data   any          `json:"data"`
	Errors []replyError `json:"errors,omitempty"`
}

type replyError struct {
	Message    string            `json:"message"`
	Path       []any             `json:"path,omitempty"`
	Extensions map[string]string `json:"extensions,omitempty"`
}

// serveGraphQL answers a query. If the query is malformed, the reply has status 400. If a field
// fails, the reply contains an error for it.
func serveGraphQL(c *caller, w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxQuery)
	if err != nil {
		return err
	}
	op, vars, doc, err := parse(raw)
	if err != nil {
		return err
	}
	x := execution{doc: doc, vars: vars, work: maxWork, calls: maxCalls}
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

// parse reads a query. It returns the requested operation, its variables with their defaults, and
// the whole document. Errors: invalid.
func parse(raw []byte) (*ast.OperationDefinition, map[string]any, *ast.QueryDocument, error) {
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "batches are not supported: send one query at a time")
	}
	var q query
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "the body is not a GraphQL request: %w", err)
	}
	if strings.TrimSpace(q.Query) == "" {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, `the request has no query: send {"query": …}`)
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: q.Query}, maxTokens)
	if err != nil {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "parse the query: %s", bourse.Quoted(err.Error()))
	}
	op := doc.Operations.ForName(q.OperationName)
	if op == nil {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "the query has no operation %s", bourse.Quoted(q.OperationName))
	}
	if op.Operation == ast.Subscription {
		return nil, nil, nil, bourse.Errorf(bourse.CodeInvalid, "subscriptions are not supported: use a query")
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
