package wire

import "github.com/evalrun/evalrun/cmd/evalrun/internal/config"

type vendorKind struct{ config.Kind }

func vendorKinds() []vendorKind {
	return []vendorKind{
		{config.Kind{Name: "openai", KeyVar: "OPENAI_API_KEY", Doc: "OpenAI, and every server that speaks its chat completions (base_url)"}},
	}
}
