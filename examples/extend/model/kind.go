package ollama

import "github.com/evalrun/evalrun/agent/model"

// Kind is the vendor's entry in a registry: models are named as ollama/MODEL.
var Kind = model.Kind{
	Name: "ollama", Doc: "models of an Ollama server, by its own protocol",
	KeyVar: "OLLAMA_API_KEY", URLVar: "OLLAMA_BASE_URL", URL: DefaultURL,
	Open: func(s model.Service) (model.Factory, error) {
		m, err := New(s)
		if err != nil {
			return nil, err
		}
		return func(model.Binding) (model.Client, error) { return m, nil }, nil // it serves all sessions
	},
}
