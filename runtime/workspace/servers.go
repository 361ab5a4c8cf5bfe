package workspace

import (
	"context"
	"slices"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/mcp"
)

// ServerTools starts the tool servers and returns their tools, for a stage of an episode. Step
// executes their calls. LeaveShells ends the servers, and the next call starts them again.
func (w *Workspace) ServerTools(ctx context.Context) (tools []agent.Tool, notes []string, err error) {
	list, notes, err := w.client().Tools(ctx)
	for _, t := range list {
		tools = append(tools, agent.Tool{Name: t.Name, Description: t.Description, Schema: t.Schema})
	}
	return tools, notes, err
}

// client returns the client of the tool servers.
func (w *Workspace) client() *mcp.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mcp == nil {
		var list []mcp.Server
		for _, s := range w.options.Servers {
			list = append(list, mcp.Server(s))
		}
		w.mcp = mcp.New(w.get, list, mcp.Options{User: w.options.User, Dir: w.options.Dir, Env: w.options.Env})
	}
	return w.mcp
}

// leaveServers ends the tool servers.
func (w *Workspace) leaveServers() {
	w.mu.Lock()
	c := w.mcp
	w.mcp = nil
	w.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// callServer executes a call of a server's tool.
func (w *Workspace) callServer(ctx context.Context, c *mcp.Client, call event.ToolCall) (event.Body, error) {
	res, err := c.Call(ctx, call.Name, call.Args)
	if err != nil {
		return nil, err
	}
	out := event.ToolResult{Name: call.Name, Error: res.Error}
	left := int(w.options.Limit)
	for _, p := range res.Parts {
		switch {
		case p.Image == nil:
			text := clean([]byte(p.Text))
			if left <= 0 {
				continue
			}
			text = cutMiddle(text, left)
			left -= len(text)
			out.Parts = append(out.Parts, event.Part{Text: text})
		case w.options.Keep == nil || !slices.Contains(imageTypes, p.Type) || checkImage(p.Image, p.Type) != nil:
			out.Parts = append(out.Parts, event.Part{Text: "[an image that cannot be shown is left out]"})
		default:
			b, err := w.options.Keep(ctx, p.Type, p.Image)
			if err != nil {
				return nil, err
			}
			out.Parts = append(out.Parts, event.Part{Blob: &b})
		}
	}
	return out, nil
}
