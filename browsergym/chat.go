package browsergym

import (
	"slices"
	"time"
)

// Roles of a [Message].
const (
	User       = "user"
	UserImage  = "user_image" // the text is the image's address
	Assistant  = "assistant"
	Infeasible = "infeasible" // the agent says that the task cannot be done, and why
)

// A Message of the chat between the user and the agent.
type Message struct {
	Role string  `json:"role"`
	Time float64 `json:"timestamp"` // seconds since 1970
	Text string  `json:"message"`
}

// greeting is the first message of every chat. Agents see it.
const greeting = "Hi! I am your UI assistant, I can perform web tasks for you. What can I help you with?"

// chat holds the messages since Reset.
type chat []Message

func (c *chat) say(role, text string) { *c = append(*c, Message{role, unix(time.Now()), text}) }

// waitsForUser reports whether it is the user's turn.
func (c chat) waitsForUser() bool { return len(c) > 0 && c[len(c)-1].Role == Assistant }

func (c chat) copy() []Message { return slices.Clone([]Message(c)) }

func unix(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
